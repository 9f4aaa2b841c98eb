// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/norm_aten.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "trireme/optim/norm_kernels.h"
#include "trireme/tensor/numbers_of.h"

namespace trireme {
namespace {

constexpr int64_t kFewestRows = 64, kMostRows = 2048;  // blocks reduced together: 0.5 to 16 MiB
constexpr int64_t kPartials = 16;

// Sixteen partial sums over a block, added pairwise. Float64 on the CPU too.
at::Tensor sums_of(const at::Tensor& rows) {
  const at::Tensor squares = rows.mul(rows).view({rows.size(0), kNormBlock / kPartials, kPartials});
  at::Tensor sum = squares.select(1, 0).clone();
  for (int64_t i = 1; i < squares.size(1); ++i) sum.add_(squares.select(1, i));
  for (int64_t width = kPartials / 2; width > 0; width /= 2)
    sum = sum.narrow(1, 0, width).add(sum.narrow(1, width, width));
  return sum.select(1, 0);
}

}  // namespace

void DeviceSquareSums::add(const at::Tensor& x, double* out) {
  c10::AutoGradMode no_grad(false);
  const int64_t n = x.numel();
  if (n == 0) return;
  const at::Tensor flat = x.detach().view({n});
  make_room(norm_blocks(n), x.options().dtype(at::kDouble).requires_grad(false));
  for (int64_t begin = 0; begin < n;) {
    if (used_ == rows_.size(0)) reduce();
    const int64_t count = std::min(n - begin, (rows_.size(0) - used_) * kNormBlock);
    rows_.view({-1}).narrow(0, used_ * kNormBlock, count).copy_(flat.narrow(0, begin, count));
    used_ += norm_blocks(count);
    begin += count;
  }
  places_.push_back({out, norm_blocks(n)});
}

// A small model takes little memory for it, a large one few operators.
void DeviceSquareSums::make_room(int64_t blocks, const at::TensorOptions& options) {
  const bool there = rows_.defined() && rows_.device() == options.device();
  const int64_t have = there ? rows_.size(0) : 0;
  if (there && (used_ + blocks <= have || have == kMostRows)) return;
  if (rows_.defined()) reduce();
  rows_ = at::Tensor();
  rows_ = at::zeros({std::clamp(std::max(blocks, 2 * have), kFewestRows, kMostRows), kNormBlock},
                    options);
}

void DeviceSquareSums::reduce() {
  if (used_ == 0) return;
  const at::Tensor rows = rows_.narrow(0, 0, used_);
  sums_.push_back(sums_of(rows));
  rows.zero_();
  used_ = 0;
}

void DeviceSquareSums::fetch() {
  c10::AutoGradMode no_grad(false);
  reduce();
  if (places_.empty()) return;
  for (at::Tensor& t : sums_) t = t.to(sums_[0].device());
  const std::vector<double> all = numbers_of<double>(at::cat(sums_));
  const double* from = all.data();
  for (const Place& p : places_) {
    std::copy_n(from, p.blocks, p.out);
    from += p.blocks;
  }
  rows_ = at::Tensor();
  sums_.clear();
  places_.clear();
}

}  // namespace trireme
