// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/compression_hook.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/grad/compression/codec_kernels.h"
#include "trireme/tensor/host_data.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

constexpr int64_t kChunk = 8192;  // elements that stay in the cache from decoding to keeping
constexpr int kWorkSlot = 100;    // of a half bucket, in float32
constexpr int kStagingSlot = 101;

}  // namespace

float CompressionHook::largest_allowed(at::ScalarType type, int ranks, ReduceOp op) {
  const float n = static_cast<float>(ranks);
  if (type == at::kHalf) return op == ReduceOp::avg ? 65000.0f : 65000.0f / n;
  return std::numeric_limits<float>::max() / 4 / n;
}

/// A bucket that travels as it is.
class CompressionHook::Whole final : public BucketReduction {
 public:
  Whole(CompressionHook& hook, Work work, bool is_last)
      : hook_(hook), work_(std::move(work)), is_last_(is_last) {}
  bool advance() override {
    work_.wait();
    if (is_last_) {
      ++hook_.rounds_;
      hook_.wire_bytes_ = hook_.sent_;
      hook_.seconds_ = 0;
    }
    return false;
  }

 private:
  CompressionHook& hook_;
  Work work_;
  bool is_last_;
};

/// A bucket in a codec in host memory. What is not the CPU's is encoded in its first advance(), and
/// the rest of its way is one later. The n-th advance() of every bucket comes before the next of
/// any: whether the round is good is known before the first thing is kept.
class CompressionHook::Compressed final : public BucketReduction {
 public:
  Compressed(CompressionHook& hook, Group& group, const GradBucket& bucket, ReduceOp op)
      : hook_(hook), group_(group), buffer_(bucket.buffer), op_(op) {
    report_.bucket = bucket.index;
    report_.is_last = bucket.is_last;
    report_.elements = buffer_.numel();
    for (const GradBucketPart& part : *bucket.parts)
      parts_.push_back({part.parameter, part.offset, part.gradient.numel()});
    here_ = buffer_;
    if (is_asynchronous(buffer_.device()))
      leave();
    else
      encode();
  }

  bool advance() override {
    at::NoGradGuard no_grad;
    if (!encoded_) {
      check<Timeout>(left_.wait_on_host(Deadline::after(group_.timeout())),
                     "compression: bucket {} was not computed on {} within {:.0f} s",
                     report_.bucket, device_text(buffer_.device()),
                     std::chrono::duration<double>(group_.timeout()).count());
      encode();
      return true;
    }
    if (!arrived_) {
      arrived_ = true;
      usable_ = encoded_->arrive();
      hook_.good_ &= usable_;
      return true;
    }
    encoded_->finish();
    settle();
    return false;
  }

 private:
  // To the host, late.
  void leave() {
    const DeviceStream stream = DeviceStream::current(buffer_.device());
    const auto b = static_cast<size_t>(report_.bucket);
    if (hook_.returned_.size() <= b) hook_.returned_.resize(b + 1);
    stream.wait(hook_.returned_[b]);  // perhaps on another stream
    here_ = hook_.memory_.staging(report_.bucket, kStagingSlot, buffer_.numel(),
                                  buffer_.scalar_type(), buffer_.device());
    copy_in_stream_order(here_, buffer_);
    left_ = stream.record();
  }

  void encode() {
    const Clock::time_point begun = Clock::now();
    x_ = here_;
    if (here_.scalar_type() != at::kFloat) {
      x_ = hook_.memory_.floats(group_, report_.bucket, kWorkSlot, here_.numel());
      x_.copy_(here_);
    }
    const bool usable = add_kept(largest_allowed(here_.scalar_type(), group_.size(), op_));
    if (!usable) x_.zero_();
    if (hook_.measuring()) report_.energy = codec_kernels::energy(host_data<float>(x_), x_.numel());
    const float factor = op_ == ReduceOp::avg ? 1.0f / static_cast<float>(group_.size()) : 1.0f;
    encoded_ = hook_.codec_for(report_.bucket)
                   .start({group_, report_.bucket, x_, parts_, usable, factor, hook_.rounds_,
                           hook_.memory_, buffer_.device()});
    report_.seconds = seconds_since(begun);
  }

  bool add_kept(float limit) {
    auto* x = host_data<float>(x_);
    bool usable = true;
    for (const CodecPart& part : parts_) {
      float* at = x + part.offset;
      const float most = hook_.errors_ ? hook_.errors_->add_to(part.parameter, at)
                                       : codec_kernels::largest(at, part.numel);
      usable &= most <= limit;  // a NaN is below nothing
    }
    return usable;
  }

  void settle() {
    const Clock::time_point begun = Clock::now();
    const bool keep = hook_.good_ && hook_.errors_;
    if (!usable_) {
      for (const CodecPart& part : parts_)
        std::fill_n(host_data<float>(x_) + part.offset, part.numel,
                    std::numeric_limits<float>::quiet_NaN());
    } else {
      const bool wanted = keep || hook_.measuring();
      if (wanted) hook_.chunk_.resize(kChunk);
      float* error = wanted ? hook_.chunk_.data() : nullptr;
      size_t part = 0;
      for (int64_t begin = 0; begin < x_.numel(); begin += kChunk) {
        const int64_t end = std::min(x_.numel(), begin + kChunk);
        encoded_->decode(begin, end, error);
        if (hook_.measuring()) report_.residual += codec_kernels::energy(error, end - begin);
        if (keep) part = keep_chunk(part, begin, end, error);
      }
    }
    if (hook_.good_) encoded_->commit();
    if (!x_.is_same(here_)) here_.copy_(x_);
    if (!here_.is_same(buffer_)) {
      copy_in_stream_order(buffer_, here_);
      hook_.returned_[static_cast<size_t>(report_.bucket)] =
          DeviceStream::current(buffer_.device()).record();
    }
    report_.good = hook_.good_;
    report_.bytes = encoded_->bytes;
    report_.seconds += encoded_->seconds + seconds_since(begun);
    hook_.sent_ += report_.bytes;
    hook_.spent_ += report_.seconds;
    hook_.settled(group_, report_);
    if (!report_.is_last) return;
    ++hook_.rounds_;
    hook_.wire_bytes_ = hook_.sent_;
    hook_.seconds_ = hook_.spent_;
  }

  // From `part` on; the part that goes on behind `end`, or the next.
  size_t keep_chunk(size_t part, int64_t begin, int64_t end, const float* error) {
    for (; part < parts_.size() && parts_[part].offset < end; ++part) {
      const CodecPart& p = parts_[part];
      const int64_t from = std::max(begin, p.offset), to = std::min(end, p.offset + p.numel);
      if (from < to)
        hook_.errors_->keep(p.parameter, from - p.offset, to - from, error + (from - begin));
      if (p.offset + p.numel > end) break;
    }
    return part;
  }

  CompressionHook& hook_;
  Group group_;
  at::Tensor buffer_, here_, x_;  // the bucket; in host memory; and in float32
  const ReduceOp op_;
  DeviceEvent left_;  // the copy to the host
  std::vector<CodecPart> parts_;
  std::unique_ptr<Encoded> encoded_;
  BucketReport report_;
  bool arrived_ = false, usable_ = true;
};

CompressionHook::CompressionHook(const NamedTensors& parameters, const Group& group,
                                 CompressionCommon common, bool works_on_device)
    : start_step_(common.start_step), ranks_(group.size()) {
  for (const auto& [name, p] : unique_tensors(parameters)) {
    check<UsageError>(parameters_.empty() || p.device() == device_,
                      "compression: parameter '{}' is on {}, and '{}' on {}: move the model to one "
                      "device",
                      name, p.device().str(), parameters_.front().first, device_.str());
    device_ = p.device();
    parameters_.emplace_back(name, p.numel());
  }
  on_device_ = works_on_device && is_asynchronous(device_);
  if (common.error_feedback)
    errors_ = std::make_unique<ErrorFeedback>(parameters, group, on_device_ ? device_ : at::kCPU);
  if (on_device_) settled_ = DeviceStream::current(device_).record();
}

CompressionHook::~CompressionHook() = default;

std::unique_ptr<BucketReduction> CompressionHook::start(Group& group, GradBucket& bucket,
                                                        ReduceOp op) {
  const at::ScalarType type = bucket.buffer.scalar_type();
  check<UsageError>(type == at::kFloat || type == at::kHalf || type == at::kBFloat16,
                    "compression: bucket {} is {}: gradients are float32, float16 or bfloat16",
                    bucket.index, c10::toString(type));
  check<UsageError>(bucket.buffer.device() == device_,
                    "compression: bucket {} is on {}, and the hook was made for parameters on {}: "
                    "make it after the model is moved",
                    bucket.index, bucket.buffer.device().str(), device_.str());
  check<UsageError>(op == ReduceOp::sum || op == ReduceOp::avg,
                    "compression: gradients can only be summed or averaged over ranks");
  check<UsageError>(group.size() == ranks_,
                    "compression: made for {} ranks, called in a group of {}", ranks_,
                    group.size());
  check<UsageError>(bucket.parts != nullptr, "compression: bucket {} does not list its parts",
                    bucket.index);
  for (const GradBucketPart& part : *bucket.parts) {
    const bool known = part.parameter < parameters_.size() &&
                       parameters_[part.parameter].first == part.name &&
                       parameters_[part.parameter].second == part.gradient.numel();
    check<UsageError>(known && part.offset % 8 == 0,
                      "compression: parameter {} of the reducer is '{}' with {} elements, the hook "
                      "was made for {}: give it the reducer's parameters, in order",
                      part.parameter, part.name, part.gradient.numel(),
                      part.parameter < parameters_.size()
                          ? fmt::format("'{}' with {}", parameters_[part.parameter].first,
                                        parameters_[part.parameter].second)
                          : fmt::format("{} parameters", parameters_.size()));
  }
  if (bucket.index == 0) {
    good_ = true;
    sent_ = 0;
    spent_ = 0;
  }
  at::NoGradGuard no_grad;
  if (group.size() == 1 || rounds_ < start_step_) {
    sent_ += 2 * (group.size() - 1) * static_cast<int64_t>(bucket.buffer.nbytes()) / group.size();
    return std::make_unique<Whole>(*this, group.all_reduce(bucket.buffer, op), bucket.is_last);
  }
  if (on_device_) return start_on_device(group, bucket, op);
  return std::make_unique<Compressed>(*this, group, bucket, op);
}

void CompressionHook::state(StateVisitor& visitor) {
  visitor.value("hook.rounds", rounds_);
  if (errors_) errors_->state(visitor);
}

namespace {

class OneCodecHook final : public CompressionHook {
 public:
  OneCodecHook(std::unique_ptr<Codec> codec, const NamedTensors& parameters, const Group& group,
               CompressionCommon common)
      : CompressionHook(parameters, group, common, codec->works_on_device()),
        codec_(std::move(codec)) {}
  void state(StateVisitor& visitor) override {
    CompressionHook::state(visitor);
    codec_->state(visitor);
  }
  std::string describe() const override { return codec_->describe(); }

 private:
  Codec& codec_for(int) override { return *codec_; }
  std::unique_ptr<Codec> codec_;
};

}  // namespace

std::shared_ptr<CompressionHook> one_codec_hook(std::unique_ptr<Codec> codec,
                                                const NamedTensors& parameters, const Group& group,
                                                CompressionCommon common) {
  return std::make_shared<OneCodecHook>(std::move(codec), parameters, group, common);
}

}  // namespace trireme
