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
constexpr double kSlowest = 0.5;  // of the other way's rate, at which a choice is still followed

constexpr const char* kWidenedProducts = " bfloat16_products=widened";
constexpr const char* kNativeAttention = " bfloat16_attention=native";

// The ways in which a run computes, as its identity names them.
struct Ways {
  HalfProducts products = HalfProducts::native;
  HalfAttention attention = HalfAttention::widened;
  bool operator==(const Ways&) const = default;
};

Ways ways_of(const std::string& identity) {
  const auto says = [&](const char* words) { return identity.find(words) != std::string::npos; };
  return {says(kWidenedProducts) ? HalfProducts::widened : HalfProducts::native,
          says(kNativeAttention) ? HalfAttention::native : HalfAttention::widened};
}

bool computes_in_half(const Run& run) {
  if (!run.device.is_cpu()) return false;
  for (const at::Tensor& p : run.model->parameters())
    if (p.scalar_type() == at::kBFloat16) return true;
  return false;
}

// Rank 0 measures for all.
ProductRates product_rates(Group& group) {
  ProductRates rates;
  if (group.rank() == 0) rates = measure_product_rates(kProductSize, kProductSeconds);
  const at::Tensor wire =
      at::tensor({rates.float32, rates.bfloat16, rates.float32_sums ? 1.0 : 0.0}, at::kDouble);
  group.broadcast(wire, 0).wait();
  return {wire[0].item<double>(), wire[1].item<double>(), wire[2].item<double>() != 0};
}
AttentionRates attention_rates(Group& group) {
  AttentionRates rates;
  if (group.rank() == 0) rates = measure_attention_rates(kAttentionSeconds);
  const at::Tensor wire =
      at::tensor({rates.widened, rates.native, rates.float32_sums ? 1.0 : 0.0}, at::kDouble);
  group.broadcast(wire, 0).wait();
  return {wire[0].item<double>(), wire[1].item<double>(), wire[2].item<double>() != 0};
}

// How attention computes where products of bfloat16 are the faster ones; "" where no rank has any.
// One choice for all ranks.
std::string set_up_attention(Run& run, Group& group) {
  if (run.mesh.size("cp") > 1) return "";  // blocks are put together in float32
  const int here = set_half_attention(*run.model, HalfAttention::widened);
  const at::Tensor attends = at::tensor({here}, at::kLong);
  group.all_reduce(attends, ReduceOp::max).wait();
  if (attends[0].item<int64_t>() == 0) return "";
  const AttentionRates rates = attention_rates(group);
  if (faster_attention(rates) == HalfAttention::widened)
    return ", " + describe(rates) + ", so that is computed in float32";
  set_half_attention(*run.model, HalfAttention::native);
  run.identity += kNativeAttention;
  return ", " + describe(rates);
}
}  // namespace

std::string set_up_half_products(Run& run, const PrecisionPlan& plan, Group group) {
  const bool stored = plan.compute == at::kBFloat16, cast = plan.autocast == at::kBFloat16;
  if (!run.device.is_cpu() || (!stored && !cast)) return "";
  const ProductRates rates = product_rates(group);
  const HalfProducts faster = faster_products(rates);
  const std::string rate = describe(rates);
  if (faster == HalfProducts::native) return rate + (stored ? set_up_attention(run, group) : "");
  // Autocast's products are LibTorch's own, and so are those of other people's layers.
  if (!stored || set_half_products(*run.model, faster) == 0)
    return rate + ": bfloat16 saves memory here and costs time";
  run.identity += kWidenedProducts;
  return rate + ", so they are computed in float32: bfloat16 saves memory here, not time";
}

void follow_half_products(Run& run, const std::string& saved) {
  const Ways mine = ways_of(run.identity), theirs = ways_of(saved);
  Group group = run.world();
  const at::Tensor half = at::tensor({computes_in_half(run) ? 1 : 0}, at::kLong);
  if (mine == theirs) return;
  group.all_reduce(half, ReduceOp::max).wait();
  if (half[0].item<int64_t>() == 0) return;
  if (theirs.products == HalfProducts::native && mine.products == HalfProducts::widened) {
    const ProductRates rates = product_rates(group);
    if (!rates.float32_sums || rates.ratio() < kSlowest) return;
  }
  if (theirs.attention == HalfAttention::native && mine.attention == HalfAttention::widened) {
    const AttentionRates rates = attention_rates(group);
    if (!rates.float32_sums || rates.ratio() < kSlowest) return;
  }
  set_half_products(*run.model, theirs.products);
  set_half_attention(*run.model, theirs.attention);
  for (const char* words : {kWidenedProducts, kNativeAttention})
    if (const size_t at = run.identity.find(words); at != std::string::npos)
      run.identity.erase(at, std::string(words).size());
  if (theirs.products == HalfProducts::widened) run.identity += kWidenedProducts;
  if (theirs.attention == HalfAttention::native) run.identity += kNativeAttention;
  run.setup.push_back(
      fmt::format("as in the run that it continues, products are {} and attention is {}",
                  theirs.products == HalfProducts::native ? "of bfloat16" : "computed in float32",
                  theirs.attention == HalfAttention::native ? "of bfloat16" : "in float32"));
}

}  // namespace trireme
