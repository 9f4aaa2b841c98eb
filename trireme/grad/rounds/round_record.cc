// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/rounds/round_record.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>

#include "trireme/tensor/host_data.h"

namespace trireme {

RoundRecord::RoundRecord(Group group, size_t parameters, at::Device device)
    : group_(std::move(group)), parameters_(parameters), device_(device), all_(parameters) {
  if (group_.supports(Collective::all_reduce, at::kDouble, at::kCPU)) device_ = at::kCPU;
}

RoundRecord::Fact RoundRecord::add(std::function<double()> give) {
  facts_.push_back(std::move(give));
  return facts_.size() - 1;
}

void RoundRecord::send(const std::vector<bool>& used) {
  const auto n = static_cast<size_t>(group_.size()), me = static_cast<size_t>(group_.rank());
  all_.assign(parameters_ + facts_.size() * n, 0);
  std::copy(used.begin(), used.end(), all_.begin());
  for (size_t f = 0; f < facts_.size(); ++f) all_[parameters_ + f * n + me] = facts_[f]();
  const auto length = static_cast<int64_t>(all_.size());
  if (!wire_.defined() || wire_.numel() != length)
    wire_ = group_.empty({length}, at::TensorOptions(at::kDouble).device(device_));
  if (device_ == at::kCPU)
    std::copy(all_.begin(), all_.end(), host_bits<double>(wire_));
  else
    wire_.copy_(at::from_blob(all_.data(), {length}, at::kDouble));
  work_ = group_.all_reduce(wire_);
}

void RoundRecord::read() {
  work_.wait();
  work_ = Work();
  const at::Tensor here = wire_.cpu();  // itself, where it is there
  const auto* p = host_bits<const double>(here);
  all_.assign(p, p + here.numel());
}

std::vector<double> RoundRecord::of(Fact fact) const {
  const auto n = static_cast<long>(group_.size());
  const auto begin = all_.begin() + static_cast<long>(parameters_) + static_cast<long>(fact) * n;
  return {begin, begin + n};
}

double RoundRecord::sum(Fact fact) const {
  const auto all = of(fact);
  return std::accumulate(all.begin(), all.end(), 0.0);
}

}  // namespace trireme
