// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "trireme/grad/compression/codec_aten.h"

// power_sgd_hook.cc's codec on a device: the same factors, with products that are added in the
// device's order.
namespace trireme::codec_aten {
namespace {

struct PowerSgdDeviceSlot {
  enum : int { kFirst = 30, kSecond };
};

constexpr int64_t kFlag = 16;  // floats, of which the first counts parts that are not usable

struct Remainder {
  at::Tensor vector;   // of norm 1 + epsilon at most, or zeros
  at::Tensor is_left;  // a bool: enough of it was left
};

// What of v is not in the first i rows of `earlier`, in float64.
Remainder remainder(const at::Tensor& earlier, int64_t i, const at::Tensor& v, double epsilon) {
  const at::Tensor before = v.square().sum().sqrt();
  at::Tensor rest = v;
  // Of orthonormal rows all at once, with what two passes leave of the difference.
  const int64_t together = epsilon == 0 ? i : 1;
  for (int pass = 0; pass < 2; ++pass)
    for (int64_t j = 0; j < i; j += together) {
      const at::Tensor u = earlier.narrow(0, j, together);
      rest = rest.sub(u.t().mv(u.mv(rest)));
    }
  const at::Tensor left = rest.square().sum().sqrt();
  const at::Tensor by = left.add(epsilon).reciprocal();
  // So small that its inverse overflows float32, too.
  const at::Tensor is_left =
      left.gt(before.mul(1e-6)).logical_and(left.gt(0)).logical_and(by.to(at::kFloat).isfinite());
  return {at::where(is_left, rest.mul(by), at::zeros_like(rest)), is_left};
}

}  // namespace

void orthonormalize(const at::Tensor& vectors, double epsilon, const at::Tensor& instead) {
  const at::Tensor v = vectors.to(at::kDouble);
  for (int64_t i = 0; i < v.size(0); ++i) {
    Remainder own = remainder(v, i, v.select(0, i), epsilon);
    if (instead.defined()) {
      const Remainder other = remainder(v, i, instead.select(0, i).to(at::kDouble), epsilon);
      own.vector = at::where(own.is_left, own.vector, other.vector);
    }
    v.select(0, i).copy_(own.vector);
  }
  vectors.copy_(v);
}

namespace {

class PowerSgdOnDevice final : public DeviceEncoded {
 public:
  PowerSgdOnDevice(const DeviceCodecInput& in, std::vector<PowerSgdPart> matrices, int64_t rank,
                   double epsilon)
      : group_(in.group),
        x_(in.x),
        parts_(in.parts),
        matrices_(std::move(matrices)),
        rank_(rank),
        epsilon_(epsilon),
        factor_(in.factor),
        mean_(1.0f / static_cast<float>(group_.size())) {
    int64_t first = kFlag, second = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const PowerSgdPart& m = matrices_[i];
      first_.push_back(first);
      second_.push_back(second);
      first += m.q.defined() ? m.rows * rank_ : parts_[i].numel;
      second += m.q.defined() ? m.cols * rank_ : 0;
    }
    left_ = in.memory.floats(group_, in.bucket, PowerSgdDeviceSlot::kFirst, first, x_.device());
    right_ = in.memory.floats(group_, in.bucket, PowerSgdDeviceSlot::kSecond, second, x_.device());
    left_.narrow(0, 0, kFlag).zero_();
    left_.select(0, 0).copy_(in.unusable);
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!matrices_[i].q.defined()) {
        left(i).copy_(part(i));
        continue;
      }
      right(i).copy_(matrices_[i].q);
      orthonormalize(right(i), 0, matrices_[i].instead);
      left(i).copy_(right(i).matmul(part(i).t()));
    }
    bytes = 2 * (group_.size() - 1) * 4 * (first + second) / group_.size();
    work_ = group_.all_reduce(left_);
  }

  bool arrive() override {
    work_.wait();
    const at::Tensor usable = left_.select(0, 0).eq(0).logical_and(left_.isfinite().all());
    const Fetched known(usable.to(at::kFloat));
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!matrices_[i].q.defined()) continue;
      orthonormalize(left(i), epsilon_, {});
      right(i).copy_(left(i).matmul(part(i)));
    }
    if (right_.numel() > 0) work_ = group_.all_reduce(right_);
    return *known.wait(group_) == 1;
  }

  void finish() override { work_.wait(); }

  at::Tensor decode(bool error_wanted) override {
    at::Tensor error;
    if (error_wanted) error = at::zeros_like(x_);
    for (size_t i = 0; i < parts_.size(); ++i) {
      if (!matrices_[i].q.defined()) {
        part(i).copy_(left(i).mul(factor_));
        continue;
      }
      const at::Tensor sum = left(i).t().matmul(right(i));
      if (error_wanted) shape(i, error).copy_(part(i).sub(sum.mul(mean_)));
      part(i).copy_(sum.mul(factor_));
    }
    return error;
  }

  void commit() override {
    for (size_t i = 0; i < parts_.size(); ++i)
      if (matrices_[i].q.defined()) matrices_[i].q.copy_(right(i).mul(mean_));
  }

 private:
  // Part i of a flat tensor like x, as a matrix where it is one.
  at::Tensor shape(size_t i, const at::Tensor& flat) const {
    const at::Tensor t = flat.narrow(0, parts_[i].offset, parts_[i].numel);
    return matrices_[i].q.defined() ? t.view({matrices_[i].rows, matrices_[i].cols}) : t;
  }
  at::Tensor part(size_t i) const { return shape(i, x_); }
  at::Tensor left(size_t i) const {
    const PowerSgdPart& m = matrices_[i];
    return m.q.defined() ? left_.narrow(0, first_[i], m.rows * rank_).view({rank_, m.rows})
                         : left_.narrow(0, first_[i], parts_[i].numel);
  }
  at::Tensor right(size_t i) const {
    const int64_t cols = matrices_[i].cols;
    return right_.narrow(0, second_[i], cols * rank_).view({rank_, cols});
  }

  Group group_;
  at::Tensor x_;
  const std::vector<CodecPart>& parts_;
  const std::vector<PowerSgdPart> matrices_;
  const int64_t rank_;
  const double epsilon_;
  const float factor_, mean_;
  std::vector<int64_t> first_, second_;  // where a part's floats begin in left_ and right_
  at::Tensor left_, right_;              // P's and what is not compressed; Q's
  Work work_;
};

}  // namespace

std::unique_ptr<DeviceEncoded> power_sgd(const DeviceCodecInput& in,
                                         std::vector<PowerSgdPart> matrices, int64_t rank,
                                         double epsilon) {
  return std::make_unique<PowerSgdOnDevice>(in, std::move(matrices), rank, epsilon);
}

}  // namespace trireme::codec_aten
