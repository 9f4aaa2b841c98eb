// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/clip.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/optim/norm_kernels.h"
#include "trireme/tensor/half_cast.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

// Float32, float64 or bfloat16 in CPU memory, contiguous: the gradient itself in the usual case.
at::Tensor readable(const std::string& name, const at::Tensor& g) {
  check<UsageError>(g.layout() == at::kStrided,
                    "gradient norm: the gradient of '{}' is sparse: only dense gradients", name);
  check<UsageError>(g.is_floating_point(),
                    "gradient norm: the gradient of '{}' is {}, not a float dtype", name,
                    c10::toString(g.scalar_type()));
  const auto own = g.scalar_type();
  const auto dtype = own == at::kDouble || own == at::kBFloat16 ? own : at::kFloat;
  return g.detach().to(at::TensorOptions().dtype(dtype).device(at::kCPU)).contiguous();
}

template <class T>
void sum_blocks(const at::Tensor& g, double* out) {
  const T* x = g.data_ptr<T>();
  const int64_t n = g.numel();
  at::parallel_for(0, norm_blocks(n), 64, [&](int64_t begin, int64_t end) {
    block_square_sums(x + begin * kNormBlock, std::min(n, end * kNormBlock) - begin * kNormBlock,
                      out + begin);
  });
}

// A block at a time, so that no float32 copy of the gradient is made.
void sum_bfloat16_blocks(const at::Tensor& g, double* out) {
  const auto* x = static_cast<const uint16_t*>(g.data_ptr());
  const int64_t n = g.numel();
  at::parallel_for(0, norm_blocks(n), 64, [&](int64_t begin, int64_t end) {
    float block[kNormBlock];
    for (int64_t b = begin; b < end; ++b) {
      const int64_t count = std::min(kNormBlock, n - b * kNormBlock);
      widen_bfloat16(x + b * kNormBlock, block, count);
      block_square_sums(block, count, out + b);
    }
  });
}

template <class T>
bool all_finite(const at::Tensor& g) {
  const T* x = g.data_ptr<T>();
  return std::all_of(x, x + g.numel(), [](T v) { return std::isfinite(v); });
}

}  // namespace

GradNorm grad_norm(const NamedTensors& parameters, double max_norm, double grad_scale) {
  return grad_norm(parameters, NormParts(parameters), max_norm, grad_scale);
}

GradNorm grad_norm(const NamedTensors& tensors, const NormParts& parts, double max_norm,
                   double grad_scale) {
  check<UsageError>(max_norm >= 0 && std::isfinite(max_norm),
                    "gradient clipping: max_norm is {}: give 0 (off) or a positive number",
                    max_norm);
  c10::AutoGradMode no_grad(false);
  std::vector<double> sums(static_cast<size_t>(parts.blocks()), 0.0);
  for (const auto& [name, p] : unique_tensors(tensors)) {
    const at::Tensor& g = p.grad();
    if (!g.defined()) continue;
    check<UsageError>(g.numel() == p.numel(),
                      "gradient norm: the gradient of '{}' has {} elements, the parameter {}", name,
                      g.numel(), p.numel());
    double* out = sums.data() + parts.first_block(name);
    at::Tensor x = readable(name, g);
    if (x.scalar_type() == at::kBFloat16)
      sum_bfloat16_blocks(x, out);
    else
      x.scalar_type() == at::kFloat ? sum_blocks<float>(x, out) : sum_blocks<double>(x, out);
  }
  parts.share(sums);
  GradNorm result;
  result.norm = std::sqrt(tree_sum(sums.data(), parts.blocks())) * std::abs(grad_scale);
  // Squares of finite float64 gradients may overflow: look again before calling them infinite.
  result.finite = std::isfinite(result.norm) || first_non_finite(tensors, parts).empty();
  if (result.finite && max_norm > 0)
    result.coefficient = std::min(1.0, max_norm / (result.norm + 1e-6));
  return result;
}

std::string first_non_finite(const NamedTensors& parameters) {
  return first_non_finite(parameters, NormParts(parameters));
}

std::string first_non_finite(const NamedTensors& tensors, const NormParts& parts) {
  c10::AutoGradMode no_grad(false);
  std::vector<double> bad(parts.parameters(), 0.0);
  for (const auto& [name, p] : tensors) {
    if (!p.grad().defined()) continue;
    at::Tensor x = readable(name, p.grad());
    if (x.scalar_type() == at::kBFloat16) x = x.to(at::kFloat);
    if (!(x.scalar_type() == at::kFloat ? all_finite<float>(x) : all_finite<double>(x)))
      bad[parts.index_of(name)] = 1;
  }
  parts.share(bad);
  for (size_t i = 0; i < bad.size(); ++i)
    if (bad[i] != 0) return parts.name(i);
  return "";
}

}  // namespace trireme
