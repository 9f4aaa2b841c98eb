// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/module_sync.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <sstream>

#include "trireme/base/check.h"
#include "trireme/base/lines.h"
#include "trireme/base/philox.h"
#include "trireme/comm/objects.h"
#include "trireme/comm/reachable.h"
#include "trireme/tensor/numbers_of.h"

namespace trireme {
namespace {

// A line for each tensor, with all of its names.
std::string description_of(const NamedTensors& tensors, const TiedNames& tied) {
  const std::string table = ParameterTable(tensors).fingerprint();
  if (tied.empty()) return table;
  const auto lines = lines_of(table);
  std::string text;
  for (size_t i = 0; i < tensors.size(); ++i) {
    text += lines[i];
    for (const TiedName& t : tied)
      if (t.first == tensors[i].first) text += " (also named '" + t.name + "')";
    text += '\n';
  }
  return text;
}

constexpr int64_t kNone = -1;  // no tensor, no device

/// `of`: two numbers of each rank, of which the second is the kind of its device.
void check_one_kind(const Group& group, const int64_t* of, const std::string& what) {
  for (int r = 1; r < group.size(); ++r)
    if (of[2 * r + 1] != of[1]) {
      const auto name = [&](int rank) {
        return c10::DeviceTypeName(static_cast<at::DeviceType>(of[2 * rank + 1]), true);
      };
      throw Mismatch(fmt::format("rank 0 has its {}s on {} and rank {} on {}: put the model on the "
                                 "same kind of device on every rank",
                                 what, name(0), r, name(r)),
                     {group.rank(), r, "verify", -1});
    }
}

}  // namespace

void verify_same(Group& group, const NamedTensors& tensors, const std::string& what,
                 const TiedNames& tied) {
  const std::string mine = description_of(tensors, tied);
  const auto options = at::TensorOptions(at::kLong).device(
      detail::reachable_device(group, Collective::all_gather, at::kLong));
  const int64_t kind =
      tensors.empty() ? kNone : static_cast<int64_t>(tensors[0].second.device().type());
  at::Tensor own = at::tensor({static_cast<int64_t>(stable_hash(mine)), kind}).to(options),
             all = at::empty({group.size() * 2}, options);
  group.all_gather_into_tensor(all, own).wait();
  const std::vector<int64_t> of = numbers_of<int64_t>(all);
  bool same = true;
  for (size_t i = 0; i < of.size(); i += 2) same = same && of[i] == of[0];
  if (same) return check_one_kind(group, of.data(), what);
  const auto texts = detail::all_gather_bytes(group, mine, CallSite::here());
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

void synchronise_module(Group& group, std::initializer_list<ModuleList> lists,
                        const TiedNames& tied) {
  for (const ModuleList& list : lists) verify_same(group, list.tensors, list.what, tied);
  for (const ModuleList& list : lists) broadcast_tensors(group, list.tensors);
}

}  // namespace trireme
