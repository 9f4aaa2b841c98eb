// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/error_feedback.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/grad/compression/codec_kernels.h"
#include "trireme/grad/hooks/stateful_hook.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/finite.h"
#include "trireme/tensor/host_data.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {

ErrorFeedback::ErrorFeedback(const NamedTensors& parameters, const Group& group, at::Device where)
    : rank_(group.rank()), ranks_(group.size()) {
  int64_t all = 0;
  for (const auto& [name, p] : unique_tensors(parameters)) {
    places_.push_back({name, all, p.numel()});
    all += p.numel();
  }
  flat_ = at::zeros({all}, at::TensorOptions(at::kFloat).device(where));
}

float ErrorFeedback::add_to(size_t p, float* x) {
  const Place& place = places_[p];
  const auto most = codec_kernels::add_kept(x, host_data<float>(flat_) + place.offset, place.numel);
  if (!std::isfinite(most.kept)) refuse(p);
  return most.sum;
}

void ErrorFeedback::refuse(size_t p) const {
  fail<NumericError>(
      "what rank {} kept of the gradients of '{}' (error feedback) is not finite: "
      "start from a checkpoint before it broke",
      rank_, places_[p].name);
}

void ErrorFeedback::add_to(const std::vector<CodecPart>& parts, const at::Tensor& x) {
  std::vector<at::Tensor> to, kept;
  for (const CodecPart& part : parts) {
    if (part.numel == 0) continue;
    to.push_back(x.narrow(0, part.offset, part.numel));
    kept.push_back(of(part.parameter));
  }
  if (!to.empty()) at::_foreach_add_(to, kept);
}

void ErrorFeedback::keep(const std::vector<CodecPart>& parts, const at::Tensor& error) {
  for (const CodecPart& part : parts)
    of(part.parameter).copy_(error.narrow(0, part.offset, part.numel));
}

void ErrorFeedback::check_finite(const std::vector<CodecPart>& parts) const {
  std::vector<at::Tensor> kept;
  for (const CodecPart& part : parts) kept.push_back(of(part.parameter));
  const int64_t broken = first_not_finite(kept);
  if (broken >= 0) refuse(parts[static_cast<size_t>(broken)].parameter);
}

void ErrorFeedback::keep(size_t p, int64_t offset, int64_t n, const float* error) {
  float* to = host_data<float>(flat_) + places_[p].offset + offset;
  // So much is out of the cache again before the next round reads it.
  constexpr int64_t kLarge = int64_t{1} << 20;
  if (flat_.numel() >= kLarge)
    codec_kernels::copy_past_cache(error, n, to);
  else
    std::copy_n(error, n, to);
}

void ErrorFeedback::scale(double factor) {
  if (is_asynchronous(flat_.device())) {
    flat_.mul_(static_cast<float>(factor));
    return;
  }
  auto* flat = host_data<float>(flat_);
  codec_kernels::scale(flat, flat_.numel(), static_cast<float>(factor), flat);
}

at::Tensor ErrorFeedback::of(size_t p) const {
  return flat_.narrow(0, places_[p].offset, places_[p].numel);
}

void ErrorFeedback::state(StateVisitor& visitor) {
  for (size_t p = 0; p < places_.size(); ++p)
    visitor.rank_tensor("hook.error." + places_[p].name, rank_, ranks_, RankStateRule::add, of(p));
}

}  // namespace trireme
