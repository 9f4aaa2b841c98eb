// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/tensor_parallel/exchange.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "trireme/base/trace.h"

namespace trireme::detail {
namespace {

int64_t longest_of(const std::vector<Part>& parts) {
  int64_t longest = 0;
  for (const Part& part : parts) longest = std::max(longest, part.length);
  return longest;
}
bool are_equal(const std::vector<Part>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const Part& part) { return part.length == parts[0].length; });
}
std::vector<int64_t> with_size(at::IntArrayRef sizes, int64_t dim, int64_t size) {
  auto changed = sizes.vec();
  changed[static_cast<size_t>(dim)] = size;
  return changed;
}
std::vector<int64_t> with_ranks(int ranks, std::vector<int64_t> sizes) {
  sizes.insert(sizes.begin(), ranks);
  return sizes;
}

}  // namespace

at::Tensor reachable_empty(const Group& group, at::IntArrayRef sizes, const at::Tensor& like) {
  const auto options = like.options().requires_grad(false);
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  return group.size() > 1 && numel > 0 ? group.empty(sizes, options) : at::empty(sizes, options);
}

at::Tensor gather_parts(const at::Tensor& part, Group group, int64_t dim,
                        const std::vector<Part>& parts, CallSite site) {
  at::NoGradGuard no_grad;
  const int64_t whole = parts.back().end();
  const at::Tensor dense = part.contiguous();
  if (are_equal(parts)) {
    // Rank by rank is the whole's own order where nothing but ones stands before the dim.
    int64_t before = 1;
    for (int64_t d = 0; d < dim; ++d) before *= part.size(d);
    const at::Tensor out = at::empty(before == 1 ? with_size(part.sizes(), dim, whole)
                                                 : with_ranks(group.size(), part.sizes().vec()),
                                     part.options().requires_grad(false));
    const Span span("exposed_comm", "wait for parts of layers");
    group.all_gather_into_tensor(out, dense, site).wait();
    if (before == 1) return out;
    const at::Tensor in_order = at::empty(with_size(part.sizes(), dim, whole), out.options());
    for (int r = 0; r < group.size(); ++r) {
      const Part& p = parts[static_cast<size_t>(r)];
      in_order.narrow(dim, p.begin, p.length).copy_(out[r]);
    }
    return in_order;
  }
  std::vector<at::Tensor> outputs;
  for (const Part& p : parts)
    outputs.push_back(
        at::empty(with_size(part.sizes(), dim, p.length), part.options().requires_grad(false)));
  const Span span("exposed_comm", "wait for parts of layers");
  group.all_gather(outputs, dense, site).wait();
  return at::cat(outputs, dim);
}

ReduceScatter::ReduceScatter(Group group, at::IntArrayRef sizes, int64_t dim,
                             std::vector<Part> parts, const at::Tensor& like)
    : group_(std::move(group)), dim_(dim), longest_(longest_of(parts)), parts_(std::move(parts)) {
  const auto slot = with_size(sizes, dim_, longest_);
  buffer_ = reachable_empty(group_, with_ranks(group_.size(), slot), like);
  output_ = at::empty(slot, buffer_.options());
  // Slots that are not filled to their end are added there, too.
  if (!are_equal(parts_)) buffer_.zero_();
}

at::Tensor ReduceScatter::slot(int rank) const {
  return buffer_[rank].narrow(dim_, 0, parts_[static_cast<size_t>(rank)].length);
}

void ReduceScatter::fill(const at::Tensor& whole) {
  at::NoGradGuard no_grad;
  for (int r = 0; r < group_.size(); ++r) {
    const Part& p = parts_[static_cast<size_t>(r)];
    slot(r).copy_(whole.narrow(dim_, p.begin, p.length));
  }
}

void ReduceScatter::post(CallSite site) {
  work_ = group_.reduce_scatter_tensor(output_, buffer_, ReduceOp::sum, site);
}

at::Tensor ReduceScatter::result() {
  const Span span("exposed_comm", "wait for parts of layers");
  work_.wait();
  buffer_ = at::Tensor();
  const int64_t length = parts_[static_cast<size_t>(group_.rank())].length;
  if (length == longest_) return output_;
  at::NoGradGuard no_grad;
  return output_.narrow(dim_, 0, length).clone(at::MemoryFormat::Contiguous);
}

}  // namespace trireme::detail
