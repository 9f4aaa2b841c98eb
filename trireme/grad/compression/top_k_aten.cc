// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/grad/compression/codec_aten.h"
#include "trireme/grad/compression/top_k_wire.h"

// top_k_hook.cc's codec on a device: the same choice, the same bytes.
namespace trireme::codec_aten {
namespace {

struct TopKDeviceSlot {
  enum : int { kOwn = 20, kAll };
};

constexpr int64_t kHeader = 16;  // a float: 1 where the sender's part is not usable

// The indices of the k elements of a mask that are set: without asking the device how many there
// are, as nonzero() would. Where it is not k, they are among [0, n) all the same.
at::Tensor places_of_mask(const at::Tensor& mask, int64_t k) {
  const at::Tensor nth = mask.cumsum(0, at::kLong).sub_(1);
  // What is not set, and what is too many, goes behind the last.
  const at::Tensor to = nth.masked_fill_(mask.logical_not(), k).clamp_(0, k);
  return at::zeros({k + 1}, to.options())
      .scatter_(0, to, at::arange(mask.numel(), to.options()))
      .narrow(0, 0, k);
}

}  // namespace

at::Tensor largest_elements(const at::Tensor& x, int64_t k) {
  const at::Tensor magnitudes = x.abs();
  const at::Tensor least =
      std::get<0>(magnitudes.topk(k, 0, /*largest=*/true, /*sorted=*/false)).amin();
  const at::Tensor above = magnitudes.gt(least), equal = magnitudes.eq(least);
  const at::Tensor wanted = above.sum(at::kLong).neg_().add_(k);
  return above.logical_or(equal.logical_and(equal.cumsum(0, at::kLong).le(wanted)));
}

void write_places(const top_k::Layout& layout, const at::Tensor& mask, const at::Tensor& places,
                  const at::Tensor& to) {
  if (layout.bits) {
    to.zero_();
    const at::Tensor bits = pack_bits(mask);
    to.narrow(0, 0, bits.numel()).copy_(bits);
    return;
  }
  const int64_t heads = 4 * layout.blocks;
  const at::Tensor block = places.div(top_k::kBlock, "floor");
  to.narrow(0, 0, heads)
      .view(at::kInt)
      .copy_(at::zeros({layout.blocks}, block.options())
                 .index_add_(0, block, at::ones({layout.k}, block.options())));
  to.narrow(0, heads, layout.places - heads).zero_();
  // There is no uint16: the same 16 bits, as a signed number.
  const at::Tensor low = places.sub(block.mul(top_k::kBlock));
  to.narrow(0, heads, 2 * layout.k).view(at::kShort).copy_(low.sub(low.ge(1 << 15).mul(1 << 16)));
}

ReadPlaces read_places(const top_k::Layout& layout, const at::Tensor& from) {
  if (layout.bits) {
    const at::Tensor all = unpack_bits(from, 64 * layout.words);
    const at::Tensor mask = all.narrow(0, 0, layout.n);
    return {places_of_mask(mask, layout.k),
            all.sum(at::kLong).eq(layout.k).logical_and(mask.sum(at::kLong).eq(layout.k))};
  }
  const int64_t heads = 4 * layout.blocks;
  const at::Tensor counts = from.narrow(0, 0, heads).view(at::kInt).to(at::kLong);
  const at::Tensor until = counts.cumsum(0);
  const at::Tensor low =
      from.narrow(0, heads, 2 * layout.k).view(at::kShort).to(at::kLong).bitwise_and_(0xFFFF);
  const at::Tensor nth = at::arange(layout.k, low.options());
  const at::Tensor block = at::searchsorted(until, nth, /*out_int32=*/false, /*right=*/true);
  const at::Tensor places = block.mul(top_k::kBlock).add_(low);
  at::Tensor valid = counts.ge(0).all().logical_and(until.select(0, -1).eq(layout.k));
  if (layout.k > 0)
    valid = valid.logical_and(places.select(0, -1).lt(layout.n))
                .logical_and(
                    places.narrow(0, 1, layout.k - 1).gt(places.narrow(0, 0, layout.k - 1)).all());
  return {places, valid};
}

namespace {

class TopKOnDevice final : public DeviceEncoded {
 public:
  TopKOnDevice(const DeviceCodecInput& in, double density)
      : group_(in.group),
        x_(in.x),
        factor_(in.factor),
        ranks_(group_.size()),
        layout_(x_.numel(), top_k::chosen(in.parts, density)),
        each_(kHeader + layout_.bytes),
        own_(in.memory.bytes(group_, in.bucket, TopKDeviceSlot::kOwn, each_, x_.device())),
        all_(in.memory.bytes(group_, in.bucket, TopKDeviceSlot::kAll, ranks_ * each_, x_.device())
                 .view({ranks_, each_})) {
    const at::Tensor mask = at::zeros({layout_.n}, x_.options().dtype(at::kBool));
    for (const CodecPart& part : in.parts)
      if (const int64_t k = top_k::chosen(part.numel, density); k > 0)
        mask.narrow(0, part.offset, part.numel)
            .copy_(largest_elements(x_.narrow(0, part.offset, part.numel), k));
    const at::Tensor places = places_of_mask(mask, layout_.k);
    own_.zero_();
    unusable(own_).copy_(in.unusable);
    write_places(layout_, mask, places, own_.narrow(0, kHeader, layout_.places));
    values(own_).copy_(x_.index_select(0, places));  // rounded to the nearest bfloat16
    bytes = (ranks_ - 1) * each_;
    at::Tensor all = all_.view({-1});
    work_ = group_.all_gather_into_tensor(all, own_);
  }

  bool arrive() override {
    work_.wait();
    std::vector<at::Tensor> facts;  // of each rank: not usable, and of this bucket
    for (int64_t r = 0; r < ranks_; ++r) {
      const at::Tensor row = all_.select(0, r);
      const ReadPlaces read = read_places(layout_, row.narrow(0, kHeader, layout_.places));
      places_.push_back(read.places);
      facts.push_back(unusable(row).view({1}));
      facts.push_back(read.valid.to(at::kFloat).view({1}));
    }
    const Fetched known(at::cat(facts));
    const float* fact = known.wait(group_);
    bool usable = true;
    for (int64_t r = 0; r < ranks_; ++r) {
      usable &= fact[2 * r] == 0;
      check<Corrupt>(fact[2 * r + 1] == 1,
                     "compression: the elements that rank {} sent are not of this bucket of {}", r,
                     x_.numel());
    }
    return usable;
  }

  at::Tensor decode(bool error_wanted) override {
    at::Tensor error;
    if (error_wanted) {
      error = x_.clone();
      const auto own = static_cast<size_t>(group_.rank());
      error.index_add_(0, places_[own], sent(group_.rank()).neg());
    }
    x_.zero_();
    // No place is twice among a rank's, so there is one order of adding.
    for (int64_t r = 0; r < ranks_; ++r)
      x_.index_add_(0, places_[static_cast<size_t>(r)], sent(r).mul(factor_));
    return error;
  }

 private:
  static at::Tensor unusable(const at::Tensor& row) {
    return row.narrow(0, 0, 4).view(at::kFloat).select(0, 0);
  }
  at::Tensor values(const at::Tensor& row) const {
    return row.narrow(0, kHeader + layout_.places, 2 * layout_.k).view(at::kBFloat16);
  }
  at::Tensor sent(int64_t r) const { return values(all_.select(0, r)).to(at::kFloat); }

  Group group_;
  at::Tensor x_;
  const float factor_;
  const int64_t ranks_;
  const top_k::Layout layout_;
  const int64_t each_;
  at::Tensor own_, all_;  // a row for each rank
  std::vector<at::Tensor> places_;
  Work work_;
};

}  // namespace

std::unique_ptr<DeviceEncoded> top_k(const DeviceCodecInput& in, double density) {
  return std::make_unique<TopKOnDevice>(in, density);
}

}  // namespace trireme::codec_aten
