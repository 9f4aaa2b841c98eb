// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/adasum_hook.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/grad/hooks/adasum_pair.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

/// A parameter's elements in this rank's shard of a bucket.
struct Overlap {
  size_t part = 0;
  int64_t begin = 0, end = 0;  // in the shard
};

class Adasum final : public BucketReduction {
 public:
  Adasum(Group& group, const GradBucket& bucket, ReduceOp op)
      : group_(group),
        result_(bucket.buffer),
        factor_(op == ReduceOp::sum ? group.size() : 1),
        parts_(bucket.parts->size()) {
    const int64_t n = group.size(), numel = result_.numel();
    shard_ = (numel + n - 1) / n;
    const auto options = result_.options().requires_grad(false);
    sent_ = group.empty({n * shard_}, options);
    got_ = group.empty({n * shard_}, options);
    sent_.narrow(0, 0, numel).copy_(result_);
    sent_.narrow(0, numel, n * shard_ - numel).zero_();
    const int64_t first = shard_ * group.rank(), last = first + shard_;
    for (size_t p = 0; p < parts_; ++p) {
      const GradBucketPart& part = (*bucket.parts)[p];
      const int64_t begin = std::max(first, part.offset),
                    end = std::min(last, part.offset + part.gradient.numel());
      if (begin < end) mine_.push_back({p, begin - first, end - first});
    }
    products_ = at::empty({3 * std::max<int64_t>(1, n / 2) * static_cast<int64_t>(parts_)},
                          options.dtype(at::kDouble));
    work_ = group.all_to_all_single(got_, sent_);
  }

  bool advance() override {
    at::NoGradGuard no_grad;
    // They were made in the gradient hook, perhaps on another stream than what follows runs on.
    const DeviceStream stream = DeviceStream::current(result_.device());
    for (const at::Tensor& t : {sent_, got_, products_}) stream.uses(t);
    work_.wait();
    if (gathering_) {
      result_.copy_(sent_.narrow(0, 0, result_.numel()));
      return false;
    }
    if (measured_) {
      walk(adasum::combine);
      distance_ *= 2;
    }
    measured_ = distance_ < group_.size();
    if (measured_) {
      products_.zero_();
      walk(adasum::add_products);
      work_ = group_.all_reduce(products_);
    } else {
      at::Tensor shard = got_.narrow(0, 0, shard_);
      if (factor_ != 1) shard.mul_(factor_);
      work_ = group_.all_gather_into_tensor(sent_, shard);
      gathering_ = true;
    }
    return true;
  }

 private:
  // The pairs of this level, and a parameter's part of each.
  void walk(void (*pass)(const adasum::Pair&)) {
    int64_t pair = 0;
    for (int64_t a = 0; a < group_.size(); a += 2 * distance_, ++pair)
      for (const Overlap& o : mine_)
        pass({got_, a * shard_ + o.begin, (a + distance_) * shard_ + o.begin, o.end - o.begin,
              products_, 3 * (pair * static_cast<int64_t>(parts_) + static_cast<int64_t>(o.part))});
  }

  Group group_;
  at::Tensor result_, sent_, got_, products_;
  const double factor_;
  const size_t parts_;
  int64_t shard_ = 0, distance_ = 1;
  std::vector<Overlap> mine_;
  bool measured_ = false, gathering_ = false;
  Work work_;
};

class AdasumHook final : public StatefulHook {
 public:
  void state(StateVisitor&) override {}

 private:
  std::unique_ptr<BucketReduction> start(Group& group, GradBucket& bucket, ReduceOp op) override {
    const int n = group.size();
    check<UsageError>((n & (n - 1)) == 0,
                      "Adasum adds ranks in pairs, and there are {}: start a power of two", n);
    check<UsageError>(op == ReduceOp::sum || op == ReduceOp::avg,
                      "Adasum is asked for another reduction than sum or avg");
    at::NoGradGuard no_grad;
    const at::ScalarType type = bucket.buffer.scalar_type();
    check<UsageError>(type == at::kFloat || type == at::kDouble,
                      "Adasum takes float32 and float64 gradients; these are {}: turn fp16 and "
                      "bf16 off (torch_autocast keeps float32 gradients)",
                      c10::toString(type));
    return std::make_unique<Adasum>(group, bucket, op);
  }
};

}  // namespace

std::shared_ptr<StatefulHook> adasum_hook() { return std::make_shared<AdasumHook>(); }

}  // namespace trireme
