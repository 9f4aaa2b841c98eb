// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load_fill.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/checkpoint/safetensors_dtype.h"
#include "trireme/checkpoint/steps/element_size.h"

namespace trireme {
namespace {

template <class Body>
void for_each_copy(const LoadPlan& plan, const CheckpointIndex& index, const Body& body) {
  for (const TensorSource& source : plan.tensors) {
    if (source.saved.empty()) continue;
    const IndexTensor& t = index.tensors.at(source.saved);
    for (const Copy& copy : source.copies) body(t, copy);
    for (const auto& row : source.rows)
      for (const Copy& copy : row) body(t, copy);
  }
}

}  // namespace

void open_and_verify(OpenedStep& opened, const LoadPlan& plan) {
  const CheckpointIndex& index = opened.index();
  std::set<std::string> files;
  for_each_copy(plan, index, [&](const IndexTensor& t, const Copy& copy) {
    files.insert(t.parts[copy.part].file);
  });
  opened.open(files);
  // Of each part the range that is read, once.
  std::map<const IndexPart*, std::pair<uint64_t, uint64_t>> ranges;
  for_each_copy(plan, index, [&](const IndexTensor& t, const Copy& copy) {
    const IndexPart& part = t.parts[copy.part];
    const auto each = static_cast<uint64_t>(safetensors_item_size(t.dtype));
    const uint64_t begin = static_cast<uint64_t>(copy.from) * each;
    const uint64_t end = static_cast<uint64_t>(copy.from_end()) * each;
    const auto [at, fresh] = ranges.emplace(&part, std::pair(begin, end));
    if (!fresh) at->second = {std::min(at->second.first, begin), std::max(at->second.second, end)};
  });
  for (const auto& [part, range] : ranges) opened.verify(*part, range.first, range.second);
}

const TensorSource& Filler::next(const std::string& name, const at::Tensor& local) {
  check<UsageError>(next_ < plan_.tensors.size() && plan_.tensors[next_].shown == name &&
                        plan_.tensors[next_].numel == local.numel(),
                    "load: '{}' changed between two walks", name);
  return plan_.tensors[next_++];
}

void Filler::copy(const std::string& saved, const std::vector<Copy>& copies, at::Tensor& to) const {
  const IndexTensor& t = opened_.index().tensors.at(saved);
  const auto each = static_cast<int64_t>(to.element_size());
  auto* bytes = static_cast<uint8_t*>(to.data_ptr());
  for (const Copy& copy : copies) {
    const uint8_t* from = opened_.bytes(t.parts[copy.part]).data();
    for_each_run(copy, [&](int64_t at, int64_t dest, int64_t run) {
      std::memcpy(bytes + dest * each, from + at * each, static_cast<size_t>(run * each));
    });
  }
}

void Filler::fill(const std::string& saved, const std::vector<Copy>& copies,
                  at::Tensor local) const {
  if (local.numel() == 0) return;
  const at::ScalarType dtype = safetensors_scalar_type(opened_.index().tensors.at(saved).dtype);
  if (local.is_cpu() && local.is_contiguous() && local.scalar_type() == dtype) {
    copy(saved, copies, local);
    if (!local.is_inference()) local.unsafeGetTensorImpl()->bump_version();
    return;
  }
  at::Tensor staged = at::detail::empty_cpu(local.sizes(), dtype);
  copy(saved, copies, staged);
  local.copy_(staged);
}

void Filler::tensor(const Slice& slice, at::Tensor local) {
  const TensorSource& source = next(slice.name, local);
  if (!source.saved.empty()) fill(source.saved, source.copies, std::move(local));
}

void Filler::rank_tensor(const std::string& name, int, int, RankStateRule, at::Tensor local) {
  const TensorSource& source = next(name, local);
  if (source.saved.empty() || source.rule == RankStateRule::begin_anew) return;
  if (!source.rule) return fill(source.saved, source.copies, std::move(local));
  at::Tensor sum = at::detail::empty_cpu(local.sizes(), local.scalar_type());
  sum.zero_();
  at::Tensor row = at::detail::empty_cpu(
      local.sizes(), safetensors_scalar_type(opened_.index().tensors.at(source.saved).dtype));
  for (const auto& copies : source.rows) {
    copy(source.saved, copies, row);
    sum.add_(row);
  }
  if (source.rule == RankStateRule::average) sum.div_(static_cast<double>(source.old_ranks));
  local.copy_(sum);
}

}  // namespace trireme
