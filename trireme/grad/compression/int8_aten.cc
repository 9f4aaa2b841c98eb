// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trireme/grad/compression/codec_aten.h"
#include "trireme/grad/compression/codec_wire.h"

// int8_hook.cc's codec on a device: the same steps, all ranks' shares at once.
namespace trireme::codec_aten {
namespace {

struct Int8DeviceSlot {
  enum : int { kSent = 0, kGot, kOwn, kAll, kSum };
};

class Int8OnDevice final : public DeviceEncoded {
 public:
  Int8OnDevice(const DeviceCodecInput& in, int64_t block)
      : group_(in.group),
        x_(in.x),
        factor_(in.factor),
        block_(block),
        ranks_(group_.size()),
        wire_(x_.numel(), ranks_, block),
        sent_(shares(in, Int8DeviceSlot::kSent, ranks_)),
        got_(shares(in, Int8DeviceSlot::kGot, ranks_)),
        own_(shares(in, Int8DeviceSlot::kOwn, 1)),
        all_(shares(in, Int8DeviceSlot::kAll, ranks_)),
        sum_(in.memory.floats(group_, in.bucket, Int8DeviceSlot::kSum, wire_.share, x_.device())) {
    at::Tensor rows = x_;
    if (x_.numel() < ranks_ * wire_.share) {
      rows = at::zeros({ranks_ * wire_.share}, x_.options());
      rows.narrow(0, 0, x_.numel()).copy_(x_);
    }
    sent_.zero_();
    flags(sent_).copy_(in.unusable.expand({ranks_, 1}));
    quantize(rows.view({ranks_, wire_.share}), block_, scales(sent_), values(sent_));
    bytes = 2 * (ranks_ - 1) * wire_.bytes;
    at::Tensor got = got_.view({-1});
    work_ = group_.all_to_all_single(got, sent_.view({-1}));
  }

  bool arrive() override {
    work_.wait();
    const Fetched unusable(flags(got_));
    const at::Tensor parts = dequantize(values(got_), scales(got_), block_, 1);
    sum_.zero_();
    for (int64_t r = 0; r < ranks_; ++r) sum_.add_(parts.select(0, r));
    own_.zero_();
    const at::Tensor sum = sum_.unsqueeze(0);
    quantize(sum, block_, scales(own_), values(own_));
    sum.sub_(dequantize(values(own_), scales(own_), block_, 1));
    at::Tensor all = all_.view({-1});
    work_ = group_.all_gather_into_tensor(all, own_.view({-1}));
    // Every rank heard of every part that is not usable.
    const float* flag = unusable.wait(group_);
    return std::all_of(flag, flag + ranks_, [](float f) { return f == 0; });
  }

  void finish() override { work_.wait(); }

  at::Tensor decode(bool error_wanted) override {
    at::Tensor error;
    if (error_wanted) {
      error = x_.sub(decoded(sent_, 1));
      // What the sum lost when it was rounded is its owner's to send again.
      const int64_t own = wire_.length_of(group_.rank());
      error.narrow(0, wire_.begin_of(group_.rank()), own).add_(sum_.narrow(0, 0, own));
    }
    x_.copy_(decoded(all_, factor_));
    return error;
  }

 private:
  at::Tensor shares(const DeviceCodecInput& in, int slot, int64_t count) const {
    return in.memory.bytes(group_, in.bucket, slot, count * wire_.bytes, in.x.device())
        .view({count, wire_.bytes});
  }
  static at::Tensor flags(const at::Tensor& t) { return t.narrow(1, 0, 4).view(at::kFloat); }
  at::Tensor scales(const at::Tensor& t) const {
    return t.narrow(1, codec_wire::Int8::kHeader, 4 * wire_.scales).view(at::kFloat);
  }
  at::Tensor values(const at::Tensor& t) const {
    return t.narrow(1, wire_.values(), wire_.share).view(at::kChar);
  }
  at::Tensor decoded(const at::Tensor& t, float factor) const {
    return dequantize(values(t), scales(t), block_, factor).view({-1}).narrow(0, 0, x_.numel());
  }

  Group group_;
  at::Tensor x_;
  const float factor_;
  const int64_t block_, ranks_;
  const codec_wire::Int8 wire_;
  at::Tensor sent_, got_, own_, all_;  // a row for each share
  at::Tensor sum_;
  Work work_;
};

}  // namespace

std::unique_ptr<DeviceEncoded> int8(const DeviceCodecInput& in, int64_t block) {
  return std::make_unique<Int8OnDevice>(in, block);
}

}  // namespace trireme::codec_aten
