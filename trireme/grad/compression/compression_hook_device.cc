// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "trireme/grad/compression/compression_hook.h"

namespace trireme {
namespace {

constexpr int kFloatSlot = 100;  // of a half bucket, in float32

}  // namespace

/// A bucket in a codec on the device, from the gradient hook on.
class CompressionHook::CompressedOnDevice final : public BucketReduction {
 public:
  CompressedOnDevice(CompressionHook& hook, Group& group, const GradBucket& bucket, ReduceOp op)
      : hook_(hook), group_(group), buffer_(bucket.buffer), x_(buffer_) {
    report_.bucket = bucket.index;
    report_.is_last = bucket.is_last;
    report_.elements = buffer_.numel();
    for (const GradBucketPart& part : *bucket.parts)
      parts_.push_back({part.parameter, part.offset, part.gradient.numel()});
    // The last round ended perhaps on another stream.
    DeviceStream::current(buffer_.device()).wait(hook_.settled_);
    if (buffer_.scalar_type() != at::kFloat) {
      x_ = hook_.memory_.floats(group, bucket.index, kFloatSlot, buffer_.numel(), buffer_.device());
      x_.copy_(buffer_);
    }
    if (hook_.errors_) hook_.errors_->add_to(parts_, x_);
    // A NaN is below nothing.
    const float limit = largest_allowed(buffer_.scalar_type(), group.size(), op);
    const at::Tensor unusable = x_.numel() > 0 ? x_.abs().amax().le(limit).logical_not_()
                                               : at::zeros({}, x_.options().dtype(at::kBool));
    x_.masked_fill_(unusable, 0);
    const float factor = op == ReduceOp::avg ? 1.0f / static_cast<float>(group.size()) : 1.0f;
    encoded_ = hook_.codec_for(bucket.index)
                   .start_on_device({group, bucket.index, x_, parts_, unusable, factor,
                                     hook_.rounds_, hook_.memory_});
  }

  bool advance() override {
    at::NoGradGuard no_grad;
    if (!arrived_) {
      arrived_ = true;
      usable_ = encoded_->arrive();
      if (!usable_ && hook_.errors_) hook_.errors_->check_finite(parts_);
      hook_.good_ &= usable_;
      return true;
    }
    encoded_->finish();
    settle();
    return false;
  }

 private:
  void settle() {
    if (usable_) {
      const bool keep = hook_.good_ && hook_.errors_;
      const at::Tensor error = encoded_->decode(keep);
      if (keep) hook_.errors_->keep(parts_, error);
      if (hook_.good_) encoded_->commit();
    } else {
      for (const CodecPart& part : parts_)
        x_.narrow(0, part.offset, part.numel).fill_(std::numeric_limits<float>::quiet_NaN());
    }
    if (!x_.is_same(buffer_)) buffer_.copy_(x_);
    hook_.settled_ = DeviceStream::current(buffer_.device()).record();
    report_.good = hook_.good_;
    report_.bytes = encoded_->bytes;
    hook_.sent_ += report_.bytes;
    hook_.settled(group_, report_);
    if (!report_.is_last) return;
    ++hook_.rounds_;
    hook_.wire_bytes_ = hook_.sent_;
    hook_.seconds_ = 0;
  }

  CompressionHook& hook_;
  Group group_;
  at::Tensor buffer_, x_;  // the bucket, and in float32
  std::vector<CodecPart> parts_;
  std::unique_ptr<DeviceEncoded> encoded_;
  BucketReport report_;
  bool arrived_ = false, usable_ = true;
};

std::unique_ptr<BucketReduction> CompressionHook::start_on_device(Group& group, GradBucket& bucket,
                                                                  ReduceOp op) {
  return std::make_unique<CompressedOnDevice>(*this, group, bucket, op);
}

}  // namespace trireme
