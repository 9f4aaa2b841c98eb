// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/build/half_products_setup.h"

#include <ATen/ops/tensor.h>
#include <fmt/core.h>

#include "trireme/layers/half_attention.h"
#include "trireme/layers/half_products.h"

namespace trireme {
namespace {
constexpr int64_t kProductSize = 384;  // 0.1 s even at 1 GFLOP/s
constexpr double kProductSeconds = 0.02;
constexpr double kAttentionSeconds = 0.03;

// How attention computes where products of bfloat16 are the faster ones; "" where no rank has any.
// One choice for all ranks.
std::string set_up_attention(Run& run, Group& group) {
  const int here = set_half_attention(*run.model, HalfAttention::widened);
  const at::Tensor attends = at::tensor({here}, at::kLong);
  group.all_reduce(attends, ReduceOp::max).wait();
  if (attends[0].item<int64_t>() == 0) return "";
  AttentionRates rates;
  if (group.rank() == 0) rates = measure_attention_rates(kAttentionSeconds);
  const at::Tensor wire =
      at::tensor({rates.widened, rates.native, rates.float32_sums ? 1.0 : 0.0}, at::kDouble);
  group.broadcast(wire, 0).wait();
  rates = {wire[0].item<double>(), wire[1].item<double>(), wire[2].item<double>() != 0};
  if (faster_attention(rates) == HalfAttention::widened)
    return ", " + describe(rates) + ", so that is computed in float32";
  set_half_attention(*run.model, HalfAttention::native);
  run.identity += " bfloat16_attention=native";
  return ", " + describe(rates);
}
}  // namespace

std::string set_up_half_products(Run& run, const PrecisionPlan& plan, Group group) {
  const bool stored = plan.compute == at::kBFloat16, cast = plan.autocast == at::kBFloat16;
  if (!run.device.is_cpu() || (!stored && !cast)) return "";
  ProductRates rates;
  if (group.rank() == 0) rates = measure_product_rates(kProductSize, kProductSeconds);
  const at::Tensor wire =
      at::tensor({rates.float32, rates.bfloat16, rates.float32_sums ? 1.0 : 0.0}, at::kDouble);
  group.broadcast(wire, 0).wait();
  rates = {wire[0].item<double>(), wire[1].item<double>(), wire[2].item<double>() != 0};
  const HalfProducts faster = faster_products(rates);
  const std::string rate = describe(rates);
  if (faster == HalfProducts::native) return rate + (stored ? set_up_attention(run, group) : "");
  // Autocast's products are LibTorch's own, and so are those of other people's layers.
  if (!stored || set_half_products(*run.model, faster) == 0)
    return rate + ": bfloat16 saves memory here and costs time";
  run.identity += " bfloat16_products=widened";
  return rate + ", so they are computed in float32: bfloat16 saves memory here, not time";
}

}  // namespace trireme
