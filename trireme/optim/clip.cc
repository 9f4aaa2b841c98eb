// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/clip.h"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "trireme/base/check.h"
#include "trireme/optim/norm_aten.h"
#include "trireme/optim/norm_kernels.h"
#include "trireme/tensor/finite.h"
#include "trireme/tensor/half_cast.h"
#include "trireme/tensor/host_data.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

// Dense, real and contiguous, where it is: the gradient itself in the usual case.
at::Tensor plain(const std::string& name, const at::Tensor& g) {
  check<UsageError>(g.layout() == at::kStrided,
                    "gradient norm: the gradient of '{}' is sparse: only dense gradients", name);
  if (g.is_complex()) return plain(name, g.detach().abs());
  check<UsageError>(g.is_floating_point(),
                    "gradient norm: the gradient of '{}' is {}, not a float dtype", name,
                    c10::toString(g.scalar_type()));
  return g.detach().contiguous();
}

// Float32, float64 or bfloat16 in CPU memory.
at::Tensor readable(const std::string& name, const at::Tensor& g) {
  const at::Tensor x = plain(name, g);
  const auto own = x.scalar_type();
  const auto dtype = own == at::kDouble || own == at::kBFloat16 ? own : at::kFloat;
  return x.to(at::TensorOptions().dtype(dtype).device(at::kCPU));
}

template <class T>
void sum_blocks(const at::Tensor& g, double* out) {
  const T* x = host_data<T>(g);
  const int64_t n = g.numel();
  at::parallel_for(0, norm_blocks(n), 64, [&](int64_t begin, int64_t end) {
    block_square_sums(x + begin * kNormBlock, std::min(n, end * kNormBlock) - begin * kNormBlock,
                      out + begin);
  });
}

// A block at a time, so that no float32 copy of the gradient is made.
void sum_bfloat16_blocks(const at::Tensor& g, double* out) {
  const auto* x = host_bits<const uint16_t>(g);
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

// Per block: Σ|x|^p, or the largest |x| where p is infinite. NaN goes on to the result.
template <class T>
void power_blocks(const at::Tensor& g, double p, double* out) {
  const T* x = host_data<T>(g);
  const int64_t n = g.numel();
  at::parallel_for(0, norm_blocks(n), 64, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      double sum = 0;
      for (int64_t i = b * kNormBlock; i < std::min(n, (b + 1) * kNormBlock); ++i) {
        const double size = std::abs(static_cast<double>(x[i]));
        if (!std::isinf(p))
          sum += p == 1 ? size : std::pow(size, p);
        else if (!(size <= sum))
          sum = std::isnan(sum) ? sum : size;
      }
      out[b] = sum;
    }
  });
}

double power_norm(const NamedTensors& tensors, const NormParts& parts, double p) {
  c10::AutoGradMode no_grad(false);
  std::vector<double> blocks(static_cast<size_t>(parts.blocks()), 0.0);
  for (const auto& [name, t] : tensors) {
    if (!t.grad().defined()) continue;
    at::Tensor x = parts.counted(name, readable(name, t.grad()));
    if (x.scalar_type() == at::kBFloat16) x = x.to(at::kFloat);
    double* out = blocks.data() + parts.first_block(name);
    x.scalar_type() == at::kFloat ? power_blocks<float>(x, p, out)
                                  : power_blocks<double>(x, p, out);
  }
  parts.add_blocks_over_ranks(blocks);  // a block's number is 0 on all ranks but one
  if (!std::isinf(p)) return std::pow(tree_sum(blocks.data(), parts.blocks()), 1 / p);
  double largest = 0;
  for (double b : blocks)
    if (!(b <= largest)) largest = std::isnan(largest) ? largest : b;
  return largest;
}

// Names for messages, and so that blocks are added in the order of the list. A tensor that is
// listed twice counts once, and is clipped once.
NamedTensors numbered(const std::vector<at::Tensor>& parameters) {
  NamedTensors named;
  std::set<const void*> seen;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (seen.insert(parameters[i].unsafeGetTensorImpl()).second)
      named.emplace_back(fmt::format("parameter {:06}", i), parameters[i]);
  return named;
}

}  // namespace

double clip_grad_norm_(const NamedTensors& tensors, const NormParts& parts, double max_norm,
                       double norm_type, bool error_if_nonfinite) {
  check<UsageError>(max_norm >= 0, "clip_grad_norm_: max_norm is {}: it must be 0 or more",
                    max_norm);
  check<UsageError>(norm_type > 0,
                    "clip_grad_norm_: norm_type is {}: it must be above 0 (2, 1, infinity)",
                    norm_type);
  const double norm =
      norm_type == 2 ? grad_norm(tensors, parts, 0, 1).norm : power_norm(tensors, parts, norm_type);
  if (error_if_nonfinite && !std::isfinite(norm))
    fail<NumericError>(
        "clip_grad_norm_: the norm of the gradients is {} (the first that is not finite is that of "
        "'{}'): they are as they were",
        norm, first_non_finite(tensors, parts));
  const double coefficient = max_norm / (norm + 1e-6);
  if (coefficient >= 1) return norm;
  c10::AutoGradMode no_grad(false);
  for (const auto& [name, t] : tensors)
    if (t.grad().defined()) t.grad().mul_(coefficient);
  return norm;
}

double clip_grad_norm_(const NamedTensors& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  return clip_grad_norm_(parameters, NormParts(parameters), max_norm, norm_type,
                         error_if_nonfinite);
}

double clip_grad_norm_(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type,
                       bool error_if_nonfinite) {
  return clip_grad_norm_(numbered(parameters), max_norm, norm_type, error_if_nonfinite);
}

void clip_grad_value_(const NamedTensors& parameters, double clip_value) {
  check<UsageError>(clip_value >= 0, "clip_grad_value_: clip_value is {}: it must be 0 or more",
                    clip_value);
  for (const auto& [name, t] : parameters) {
    if (!t.grad().defined()) continue;
    check<UsageError>(t.grad().layout() == at::kStrided && !t.grad().is_complex(),
                      "clip_grad_value_: the gradient of '{}' is {}: only dense, real gradients "
                      "can be clipped by value",
                      name, t.grad().is_complex() ? "complex" : "sparse");
  }
  c10::AutoGradMode no_grad(false);
  for (const auto& [name, t] : parameters)
    if (t.grad().defined()) t.grad().clamp_(-clip_value, clip_value);
}

void clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  clip_grad_value_(numbered(parameters), clip_value);
}

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
  DeviceSquareSums late;
  for (const auto& [name, p] : unique_tensors(tensors)) {
    const at::Tensor& g = p.grad();
    if (!g.defined()) continue;
    check<UsageError>(g.numel() == p.numel(),
                      "gradient norm: the gradient of '{}' has {} elements, the parameter {}", name,
                      g.numel(), p.numel());
    double* out = sums.data() + parts.first_block(name);
    if (!g.device().is_cpu()) {
      late.add(parts.counted(name, plain(name, g)), out);
      continue;
    }
    const at::Tensor x = parts.counted(name, readable(name, g));
    if (x.scalar_type() == at::kBFloat16)
      sum_bfloat16_blocks(x, out);
    else
      x.scalar_type() == at::kFloat ? sum_blocks<float>(x, out) : sum_blocks<double>(x, out);
  }
  late.fetch();
  parts.add_blocks_over_ranks(sums);
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
  std::map<size_t, at::Tensor> late;  // not the CPU's: the first of them is enough
  for (const auto& [name, p] : tensors) {
    if (!p.grad().defined()) continue;
    const at::Tensor x = plain(name, p.grad());
    if (x.device().is_cpu()) {
      if (!all_finite(x)) bad[parts.index_of(name)] = 1;
      continue;
    }
    late.emplace(parts.index_of(name), x);
  }
  std::vector<at::Tensor> values;
  for (const auto& [number, x] : late) values.push_back(x);
  if (const int64_t first = first_not_finite(values); first >= 0)
    bad[std::next(late.begin(), first)->first] = 1;
  parts.add_over_ranks(bad);
  for (size_t i = 0; i < bad.size(); ++i)
    if (bad[i] != 0) return parts.name(i);
  return "";
}

}  // namespace trireme
