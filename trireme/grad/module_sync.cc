// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/module_sync.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"

namespace trireme {
namespace {

at::Tensor bytes_of(const std::string& text, int64_t length) {
  at::Tensor t = at::zeros({length}, at::kByte);
  std::memcpy(t.data_ptr(), text.data(), std::min(text.size(), static_cast<size_t>(length)));
  return t;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::vector<std::string> all_gather_strings(Group& group, const std::string& mine) {
  const auto n = static_cast<int64_t>(group.size());
  at::Tensor length = at::empty({1}, at::kLong), lengths = at::empty({n}, at::kLong);
  *static_cast<int64_t*>(length.data_ptr()) = static_cast<int64_t>(mine.size());
  group.all_gather_into_tensor(lengths, length).wait();
  const auto* l = static_cast<const int64_t*>(lengths.data_ptr());
  const int64_t longest = *std::max_element(l, l + n);
  at::Tensor all = at::empty({n * longest}, at::kByte);
  group.all_gather_into_tensor(all, bytes_of(mine, longest)).wait();
  std::vector<std::string> texts;
  for (int64_t r = 0; r < n; ++r)
    texts.emplace_back(static_cast<const char*>(all.data_ptr()) + r * longest,
                       static_cast<size_t>(l[r]));
  return texts;
}

std::string broadcast_string(Group& group, const std::string& text, int root) {
  at::Tensor length = at::empty({1}, at::kLong);
  auto* l = static_cast<int64_t*>(length.data_ptr());
  *l = static_cast<int64_t>(text.size());
  group.broadcast(length, root).wait();
  at::Tensor bytes = bytes_of(text, *l);
  group.broadcast(bytes, root).wait();
  return {static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(*l)};
}

void verify_same(Group& group, const NamedTensors& tensors, const std::string& what) {
  const std::string mine = ParameterTable(tensors).fingerprint();
  at::Tensor hash = at::empty({1}, at::kLong), hashes = at::empty({group.size()}, at::kLong);
  *static_cast<int64_t*>(hash.data_ptr()) = static_cast<int64_t>(stable_hash(mine));
  group.all_gather_into_tensor(hashes, hash).wait();
  const auto* h = static_cast<const int64_t*>(hashes.data_ptr());
  if (std::all_of(h, h + group.size(), [&](int64_t x) { return x == h[0]; })) return;
  const auto texts = all_gather_strings(group, mine);
  const auto ours = lines_of(texts[0]);
  for (int r = 1; r < group.size(); ++r) {
    const auto theirs = lines_of(texts[static_cast<size_t>(r)]);
    for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
      const std::string a = i < ours.size() ? ours[i] : "none",
                        b = i < theirs.size() ? theirs[i] : "none";
      if (a != b)
        throw Mismatch(fmt::format("{} {} differs: rank 0 has {}, rank {} has {} ({} and {} in "
                                   "all). Build the same model on "
                                   "every rank",
                                   what, i, a, r, b, ours.size(), theirs.size()),
                       {group.rank(), r, "verify", -1});
    }
  }
}

void broadcast_tensors(Group& group, const NamedTensors& tensors, int root) {
  // variable_data() shares the bytes but not the version counter: a forward under way may have
  // saved the tensor.
  std::vector<Work> works;
  for (const auto& [name, t] : tensors) works.push_back(group.broadcast(t.variable_data(), root));
  for (auto& w : works) w.wait();
}

}  // namespace trireme
