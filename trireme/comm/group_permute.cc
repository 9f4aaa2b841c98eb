// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include "trireme/comm/group_check.h"

// Each rank sends one tensor and receives one. It is carried out as an all_to_all in which all
// parts but one of each rank are empty, so every backend supports it, and the comparison of what
// ranks send and expect detects permutations that differ.
namespace trireme {

namespace {

/// Returns the rank whose input comes to this rank.
int source_in(const std::vector<int>& to, const detail::Backend& b) {
  check<UsageError>(static_cast<int>(to.size()) == b.size(), "permute: {} targets for {} ranks",
                    to.size(), b.size());
  std::vector<int> from(to.size(), -1);
  for (size_t r = 0; r < to.size(); ++r) {
    check<UsageError>(to[r] >= 0 && to[r] < b.size(),
                      "permute: rank {} sends to rank {}, which is not in a group of {}", r, to[r],
                      b.size());
    int& source = from[static_cast<size_t>(to[r])];
    check<UsageError>(source < 0,
                      "permute: ranks {} and {} both send to rank {}; each rank gets one tensor",
                      source, r, to[r]);
    source = static_cast<int>(r);
  }
  return from[static_cast<size_t>(b.rank())];
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  const auto *x = static_cast<const char*>(a.data_ptr()),
             *y = static_cast<const char*>(b.data_ptr());
  return a.numel() && b.numel() && x < y + b.nbytes() && y < x + a.nbytes();
}

}  // namespace

Work Group::permute(const at::Tensor& output, const at::Tensor& input, const std::vector<int>& to,
                    CallSite site) {
  auto& b = checked();
  detail::check_tensor(b, Collective::permute, input, "permute");
  detail::check_tensor(b, Collective::permute, output, "permute");
  check<UsageError>(output.scalar_type() == input.scalar_type(),
                    "permute: output is {}, input is {}", c10::toString(output.scalar_type()),
                    c10::toString(input.scalar_type()));
  const int source = source_in(to, b), target = to[static_cast<size_t>(rank())];
  check<UsageError>(source != rank() || output.numel() == input.numel(),
                    "permute: rank {} sends {} elements to itself, and its output has {}", source,
                    input.numel(), output.numel());
  detail::Dense dense(input), dense_out(output);
  check<UsageError>(!share_memory(dense.tensor, dense_out.tensor),
                    "permute: input and output overlap; give it two buffers");
  std::vector<int64_t> sends(to.size(), 0), expects(to.size(), 0);
  sends[static_cast<size_t>(target)] = input.numel();
  expects[static_cast<size_t>(source)] = output.numel();
  const auto token = b.post({.op = Collective::all_to_all,
                             .called = Collective::permute,
                             .input = &dense.tensor,
                             .output = &dense_out.tensor,
                             .input_counts = &sends,
                             .output_counts = &expects,
                             .site = site});
  if (dense_out.copied) detail::copy_back(b, token, output, dense_out.tensor);
  return work(token);
}

}  // namespace trireme
