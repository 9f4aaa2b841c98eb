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
  number_blocks(parameters);
  for (size_t i = 0; i < parameters.size(); ++i)
    if (const auto it = begins.find(names_[i]); it != begins.end())
      places_[names_[i]] = place(parameters[i], i, ranges_[i].first, it->second);
}

NormParts::NormParts(std::vector<Whole> parameters, const std::map<std::string, Part>& tensors,
                     AddOverRanks add_over_ranks, bool one_number_each,
                     std::map<std::string, Ranges> ranges_elsewhere)
    : add_over_ranks_(std::move(add_over_ranks)),
      ranges_elsewhere_(std::move(ranges_elsewhere)),
      one_number_each_(one_number_each) {
  number_blocks(parameters);
  std::map<std::string, size_t> numbers;
  for (size_t i = 0; i < names_.size(); ++i) numbers.emplace(names_[i], i);
  for (const auto& [name, part] : tensors) {
    const auto it = numbers.find(part.parameter);
    check<UsageError>(it != numbers.end(), "'{}' is not a part of these parameters", name);
    const size_t i = it->second;
    places_[name] = place(parameters[i], i, part.counted ? ranges_[i].first : blocks_, part.begin);
    if (!part.counted) blocks_ += ranges_[i].second;
  }
}

void NormParts::number_blocks(const std::vector<Whole>& parameters) {
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
  counted_blocks_ = blocks_;
  for (const Whole& w : parameters) names_.push_back(w.name);
  check<UsageError>(std::set<std::string>(names_.begin(), names_.end()).size() == names_.size(),
                    "two parameters have one name: give each a name of its own");
}

NormParts::Place NormParts::place(const Whole& whole, size_t parameter, int64_t first_block,
                                  int64_t begin) {
  check<UsageError>(begin % kNormBlock == 0 && begin <= whole.numel,
                    "the part of '{}' begins at element {}: a multiple of {} in it is needed",
                    whole.name, begin, kNormBlock);
  return {parameter, first_block + begin / kNormBlock};
}

size_t NormParts::index_of(const std::string& tensor) const {
  const auto it = places_.find(tensor);
  check<UsageError>(it != places_.end(), "'{}' is not a part of these parameters", tensor);
  return it->second.parameter;
}

int64_t NormParts::first_block(const std::string& tensor) const {
  index_of(tensor);  // which it checks
  return places_.at(tensor).first_block;
}

at::Tensor NormParts::counted(const std::string& tensor, const at::Tensor& values) const {
  const auto it = ranges_elsewhere_.find(tensor);
  if (it == ranges_elsewhere_.end()) return values;
  const at::Tensor copy = values.detach().clone(at::MemoryFormat::Contiguous);
  for (const auto& [begin, end] : it->second) copy.view({-1}).narrow(0, begin, end - begin).zero_();
  return copy;
}

void NormParts::add_over_ranks(std::vector<double>& of_parameters) const {
  if (add_over_ranks_)
    add_over_ranks_(of_parameters.data(), static_cast<int64_t>(of_parameters.size()));
}

void NormParts::add_blocks_over_ranks(std::vector<double>& of_blocks) const {
  std::fill(of_blocks.begin() + counted_blocks_, of_blocks.end(), 0.0);
  if (!one_number_each_) {
    if (add_over_ranks_) add_over_ranks_(of_blocks.data(), counted_blocks_);
    return;
  }
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
