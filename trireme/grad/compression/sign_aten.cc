// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/stack.h>

#include <algorithm>

#include "trireme/grad/compression/codec_aten.h"
#include "trireme/grad/compression/codec_wire.h"

// sign_hook.cc's codec on a device.
namespace trireme::codec_aten {
namespace {

struct SignDeviceSlot {
  enum : int { kOwn = 10, kAll };
};

class SignOnDevice final : public DeviceEncoded {
 public:
  explicit SignOnDevice(const DeviceCodecInput& in)
      : group_(in.group),
        x_(in.x),
        parts_(in.parts),
        factor_(in.factor),
        ranks_(group_.size()),
        wire_(x_.numel(), static_cast<int64_t>(parts_.size())),
        own_(in.memory.bytes(group_, in.bucket, SignDeviceSlot::kOwn, wire_.bytes, x_.device())),
        all_(in.memory
                 .bytes(group_, in.bucket, SignDeviceSlot::kAll, ranks_ * wire_.bytes, x_.device())
                 .view({ranks_, wire_.bytes})) {
    own_.zero_();
    const at::Tensor head = heads(own_.unsqueeze(0)).select(0, 0), bits = pack_signs(x_);
    head.narrow(0, 0, 1).copy_(in.unusable);
    head.narrow(0, 1, head.numel() - 1).copy_(mean_magnitudes());
    own_.narrow(0, wire_.head, bits.numel()).copy_(bits);
    bytes = (ranks_ - 1) * wire_.bytes;
    at::Tensor all = all_.view({-1});
    work_ = group_.all_gather_into_tensor(all, own_);
  }

  bool arrive() override {
    work_.wait();
    const int64_t each = static_cast<int64_t>(parts_.size()) + 1;
    const Fetched heads_of_all(heads(all_));
    const float* head = heads_of_all.wait(group_);
    bool usable = true;
    for (int64_t r = 0; r < ranks_; ++r, head += each) {
      usable &= head[0] == 0;
      scales_.emplace_back(head + 1, head + each);
    }
    return usable;
  }

  at::Tensor decode(bool error_wanted) override {
    at::Tensor error;
    if (error_wanted) {
      error = x_.clone();
      add(group_.rank(), -1, error);
    }
    x_.zero_();
    for (int64_t r = 0; r < ranks_; ++r) add(r, factor_, x_);
    return error;
  }

 private:
  at::Tensor heads(const at::Tensor& rows) const {
    return rows.narrow(1, 0, 4 * (static_cast<int64_t>(parts_.size()) + 1)).view(at::kFloat);
  }

  at::Tensor mean_magnitudes() const {
    const at::Tensor magnitudes = x_.abs();
    std::vector<at::Tensor> sums;
    std::vector<at::Scalar> counts;
    for (const CodecPart& part : parts_) {
      sums.push_back(magnitudes.narrow(0, part.offset, part.numel).sum(at::kDouble));
      counts.emplace_back(static_cast<double>(std::max<int64_t>(1, part.numel)));
    }
    at::_foreach_div_(sums, counts);
    return at::stack(sums);
  }

  // to += what rank r sent × factor, where there are parts.
  void add(int64_t r, float factor, const at::Tensor& to) const {
    const at::Tensor signs_of_r =
        signs(all_.select(0, r).narrow(0, wire_.head, (x_.numel() + 7) / 8), x_.numel());
    std::vector<at::Tensor> places, theirs;
    std::vector<at::Scalar> scales;
    for (size_t p = 0; p < parts_.size(); ++p) {
      if (parts_[p].numel == 0) continue;
      places.push_back(to.narrow(0, parts_[p].offset, parts_[p].numel));
      theirs.push_back(signs_of_r.narrow(0, parts_[p].offset, parts_[p].numel));
      scales.emplace_back(scales_[static_cast<size_t>(r)][p] * factor);
    }
    if (places.empty()) return;
    at::_foreach_mul_(theirs, scales);
    at::_foreach_add_(places, theirs);
  }

  Group group_;
  at::Tensor x_;
  const std::vector<CodecPart>& parts_;
  const float factor_;
  const int64_t ranks_;
  const codec_wire::Sign wire_;
  at::Tensor own_, all_;  // all_: a row for each rank
  std::vector<std::vector<float>> scales_;
  Work work_;
};

}  // namespace

std::unique_ptr<DeviceEncoded> sign(const DeviceCodecInput& in) {
  return std::make_unique<SignOnDevice>(in);
}

}  // namespace trireme::codec_aten
