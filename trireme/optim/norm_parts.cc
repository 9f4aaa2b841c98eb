// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/norm_parts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "trireme/base/check.h"
#include "trireme/comm/reachable.h"
#include "trireme/optim/norm_kernels.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

std::vector<NormParts::Whole> wholes(const NamedTensors& parameters) {
  std::vector<NormParts::Whole> list;
  for (const auto& [name, p] : parameters) list.push_back({name, p.numel()});
  return list;
}

std::map<std::string, int64_t> from_their_start(const NamedTensors& parameters) {
  std::map<std::string, int64_t> begins;
  for (const auto& [name, p] : parameters) begins[name] = 0;
  return begins;
}

}  // namespace

NormParts::NormParts(const NamedTensors& parameters) {
  TiedNames tied;
  const NamedTensors once = unique_tensors(parameters, &tied);
  *this = NormParts(wholes(once), from_their_start(once), {});
  for (const TiedName& t : tied) places_[t.name] = places_.at(t.first);
}

NormParts::NormParts(std::vector<Whole> parameters, std::map<std::string, int64_t> begins,
                     AddOverRanks add_over_ranks)
    : add_over_ranks_(std::move(add_over_ranks)) {
  std::vector<size_t> by_name(parameters.size());
  std::iota(by_name.begin(), by_name.end(), size_t{0});
  std::sort(by_name.begin(), by_name.end(),
            [&](size_t a, size_t b) { return parameters[a].name < parameters[b].name; });
  ranges_.resize(parameters.size());
  for (size_t i : by_name) {
    const int64_t count = norm_blocks(parameters[i].numel);
    ranges_[i] = {blocks_, count};
    blocks_ += count;
  }
  for (const Whole& w : parameters) {
    if (const auto it = begins.find(w.name); it != begins.end()) {
      check<UsageError>(it->second % kNormBlock == 0 && it->second <= w.numel,
                        "the part of '{}' begins at element {}: a multiple of {} in it is needed",
                        w.name, it->second, kNormBlock);
      places_[w.name] = {names_.size(), it->second};
    }
    names_.push_back(w.name);
  }
  check<UsageError>(std::set<std::string>(names_.begin(), names_.end()).size() == names_.size(),
                    "two parameters have one name: give each a name of its own");
}

size_t NormParts::index_of(const std::string& tensor) const {
  const auto it = places_.find(tensor);
  check<UsageError>(it != places_.end(), "'{}' is not a part of these parameters", tensor);
  return it->second.parameter;
}

int64_t NormParts::first_block(const std::string& tensor) const {
  const size_t parameter = index_of(tensor);
  return ranges_[parameter].first + places_.at(tensor).begin / kNormBlock;
}

NormParts::NormParts(std::vector<Whole> parameters, std::map<std::string, int64_t> begins,
                     AddOverRanks add_over_ranks, std::set<std::string> counted_elsewhere,
                     bool one_number_each)
    : NormParts(std::move(parameters), std::move(begins), std::move(add_over_ranks)) {
  for (const std::string& name : counted_elsewhere) counted_elsewhere_.push_back(index_of(name));
  one_number_each_ = one_number_each;
}

void NormParts::add_over_ranks(std::vector<double>& of_parameters) const {
  if (add_over_ranks_)
    add_over_ranks_(of_parameters.data(), static_cast<int64_t>(of_parameters.size()));
}

void NormParts::add_blocks_over_ranks(std::vector<double>& of_blocks) const {
  for (const size_t parameter : counted_elsewhere_) {
    const auto [first, count] = ranges_[parameter];
    std::fill_n(of_blocks.begin() + first, count, 0.0);
  }
  if (!one_number_each_) return add_over_ranks(of_blocks);
  std::vector<double> sums;
  for (const auto& [first, count] : ranges_) {
    sums.push_back(tree_sum(of_blocks.data() + first, count));
    std::fill_n(of_blocks.begin() + first, count, 0.0);
  }
  add_over_ranks(sums);
  for (size_t i = 0; i < sums.size(); ++i)
    of_blocks[static_cast<size_t>(ranges_[i].first)] = sums[i];
}

NormParts::AddOverRanks add_over(Group group) {
  return [group = std::move(group)](double* p, int64_t n) mutable {
    if (group.size() == 1) return;
    const at::Device device = detail::reachable_device(group, Collective::all_reduce, at::kDouble);
    const at::Tensor here = at::from_blob(p, {n}, at::kDouble);
    at::Tensor values = group.empty({n}, at::TensorOptions(at::kDouble).device(device)).copy_(here);
    group.all_reduce(values).wait();
    here.copy_(values);
  };
}

}  // namespace trireme
