// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/error_feedback.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/grad/compression/codec_kernels.h"
#include "trireme/grad/hooks/stateful_hook.h"
#include "trireme/tensor/host_data.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {

ErrorFeedback::ErrorFeedback(const NamedTensors& parameters, const Group& group)
    : rank_(group.rank()), ranks_(group.size()) {
  int64_t all = 0;
  for (const auto& [name, p] : unique_tensors(parameters)) {
    places_.push_back({name, all, p.numel()});
    all += p.numel();
  }
  flat_ = at::zeros({all}, at::kFloat);
}

float ErrorFeedback::add_to(size_t p, float* x) {
  const Place& place = places_[p];
  const auto most = codec_kernels::add_kept(x, host_data<float>(flat_) + place.offset, place.numel);
  check<NumericError>(std::isfinite(most.kept),
                      "what rank {} kept of the gradients of '{}' (error feedback) is not finite: "
                      "start from a checkpoint before it broke",
                      rank_, place.name);
  return most.sum;
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
