// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <set>

#include "trireme/comm/group_check.h"
#include "trireme/comm/reachable.h"

// Groups of some ranks of a group. The ranks agree on the members through the group itself.
namespace trireme {

namespace detail {

at::Tensor small_tensor(const Backend& b, int64_t count) {
  const at::Device device = reachable_device(b, Collective::all_gather, at::kLong);
  return at::empty({count}, at::TensorOptions(at::kLong).device(device)).zero_();
}

namespace {

/// One row of `values` from each rank.
std::vector<int64_t> gather_rows(Backend& b, const std::vector<int64_t>& values, CallSite site) {
  const auto n = static_cast<int64_t>(values.size());
  at::Tensor in = small_tensor(b, n), out = small_tensor(b, n * b.size());
  in.copy_(at::tensor(values, at::kLong));
  b.wait(b.post({.op = Collective::all_gather, .input = &in, .output = &out, .site = site}),
         b.timeout());
  at::Tensor host = out.cpu();
  const auto* p = static_cast<const int64_t*>(host.data_ptr());
  return {p, p + host.numel()};
}

}  // namespace

std::shared_ptr<Backend> make_subgroup(Backend& b, const std::vector<int>& members,
                                       const std::string& name) {
  b.check_process();
  auto made = b.subgroup(members, name);
  made->identity.name = name;
  for (int m : members)
    made->identity.world_ranks.push_back(
        b.identity.world_ranks.empty() ? m : b.identity.world_ranks[static_cast<size_t>(m)]);
  if (b.progress_group()) made->join(b.progress_group());
  return made;
}

}  // namespace detail

const std::string& Group::name() const { return facts().identity.name; }

std::vector<int> Group::world_ranks() const {
  auto& b = facts();
  if (!b.identity.world_ranks.empty()) return b.identity.world_ranks;
  std::vector<int> all;
  for (int r = 0; r < b.size(); ++r) all.push_back(r);
  return all;
}

Group Group::split(int color, int key, CallSite site) {
  auto& b = checked();
  const auto all = detail::gather_rows(b, {color, key}, site);
  const std::string name = fmt::format("{}/{}.{}", b.identity.name, ++b.identity.children, color);
  if (color < 0) return Group();
  std::vector<int> members;
  for (int r = 0; r < b.size(); ++r)
    if (all[static_cast<size_t>(2 * r)] == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int x, int y) {
    return all[static_cast<size_t>(2 * x + 1)] < all[static_cast<size_t>(2 * y + 1)];
  });
  return Group(detail::make_subgroup(b, members, name));
}

Group Group::new_group(const std::vector<int>& ranks, CallSite site) {
  auto& b = checked();
  check<UsageError>(!ranks.empty(), "new_group: no ranks");
  for (int r : ranks)
    check<UsageError>(r >= 0 && r < b.size(), "new_group: rank {} is not in a group of {}", r,
                      b.size());
  check<UsageError>(std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size(),
                    "new_group: a rank is named twice");
  // All ranks must name the same group.
  int64_t hash = 0;
  for (int r : ranks) hash = hash * 1000003 + r + 1;
  const auto all = detail::gather_rows(b, {hash, static_cast<int64_t>(ranks.size())}, site);
  for (int r = 0; r < b.size(); ++r)
    check<Mismatch>(all[static_cast<size_t>(2 * r)] == hash &&
                        all[static_cast<size_t>(2 * r + 1)] == static_cast<int64_t>(ranks.size()),
                    "new_group at {}:{}: rank {} and rank {} name different ranks. Every rank must "
                    "give the same list",
                    site.file, site.line, b.rank(), r);
  const std::string name = fmt::format("{}/{}", b.identity.name, ++b.identity.children);
  if (std::find(ranks.begin(), ranks.end(), b.rank()) == ranks.end()) return Group();
  return Group(detail::make_subgroup(b, ranks, name));
}

}  // namespace trireme
