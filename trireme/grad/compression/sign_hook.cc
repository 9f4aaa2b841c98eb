// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/sign_hook.h"

#include <algorithm>
#include <cstring>

#include "trireme/grad/compression/codec_aten.h"
#include "trireme/grad/compression/codec_kernels.h"
#include "trireme/grad/compression/codec_wire.h"
#include "trireme/grad/compression/host_calls.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

namespace k = codec_kernels;

struct SignSlot {
  enum : int { kOwn = 10, kAll };
};

class SignEncoded final : public Encoded {
 public:
  explicit SignEncoded(const CodecInput& in)
      : group_(in.group),
        x_(in.x),
        parts_(in.parts),
        factor_(in.factor),
        ranks_(group_.size()),
        wire_(x_.numel(), static_cast<int64_t>(parts_.size())),
        head_(wire_.head),
        each_(wire_.bytes),
        own_(in.memory.bytes(group_, in.bucket, SignSlot::kOwn, each_)),
        all_(in.memory.bytes(group_, in.bucket, SignSlot::kAll, ranks_ * each_)) {
    char* own = host_bits<char>(own_);
    std::memset(own, 0, static_cast<size_t>(head_));
    std::memset(own + each_ - 16, 0, 16);
    auto* head = reinterpret_cast<float*>(own);
    auto* bits = reinterpret_cast<uint8_t*>(own + head_);
    head[0] = in.usable ? 0 : 1;
    const float* x = host_data<float>(x_);
    for (size_t p = 0; p < parts_.size(); ++p) {
      const double n = static_cast<double>(std::max<int64_t>(1, parts_[p].numel));
      head[p + 1] = static_cast<float>(k::magnitude(x + parts_[p].offset, parts_[p].numel) / n);
      k::pack_signs(x + parts_[p].offset, parts_[p].numel, bits + parts_[p].offset / 8);
    }
    bytes = (ranks_ - 1) * each_;
    work_ = host_calls::all_gather(group_, all_, own_, in.device);
  }

  bool arrive() override {
    work_.wait();
    bool usable = true;
    for (int64_t r = 0; r < ranks_; ++r) usable &= scales_of(r)[-1] == 0;
    return usable;
  }

  void decode(int64_t begin, int64_t end, float* error) override {
    float* x = host_data<float>(x_);
    const auto behind = std::partition_point(parts_.begin(), parts_.end(), [&](const CodecPart& p) {
      return p.offset + p.numel <= begin;
    });
    if (error) std::copy_n(x + begin, end - begin, error);
    for (auto part = behind; part != parts_.end() && part->offset < end; ++part) {
      const auto p = static_cast<size_t>(part - parts_.begin());
      const int64_t from = std::max(begin, part->offset);
      const int64_t n = std::min(end, part->offset + part->numel) - from;
      if (n <= 0) continue;
      if (error)
        k::add_signs(bits_of(group_.rank()) + from / 8, n, -scales_of(group_.rank())[p],
                     error + (from - begin));
      std::fill_n(x + from, n, 0.0f);
      for (int64_t r = 0; r < ranks_; ++r)
        k::add_signs(bits_of(r) + from / 8, n, scales_of(r)[p] * factor_, x + from);
    }
  }

 private:
  const float* scales_of(int64_t r) const {
    return reinterpret_cast<const float*>(host_bits<const char>(all_) + r * each_) + 1;
  }
  const uint8_t* bits_of(int64_t r) const {
    return host_bits<const uint8_t>(all_) + r * each_ + head_;
  }

  Group group_;
  at::Tensor x_;
  const std::vector<CodecPart>& parts_;
  const float factor_;
  const int64_t ranks_;
  const codec_wire::Sign wire_;
  const int64_t head_, each_;
  at::Tensor own_, all_;
  Work work_;
};

class SignCodec final : public Codec {
 public:
  std::unique_ptr<Encoded> start(const CodecInput& in) override {
    return std::make_unique<SignEncoded>(in);
  }
  bool works_on_device() const override { return true; }
  std::unique_ptr<DeviceEncoded> start_on_device(const DeviceCodecInput& in) override {
    return codec_aten::sign(in);
  }
  int calls() const override { return 1; }
  std::string describe() const override { return "signs"; }
  std::string name() const override { return "sign"; }
};

}  // namespace

std::unique_ptr<Codec> sign_codec() { return std::make_unique<SignCodec>(); }

std::shared_ptr<CompressionHook> sign_hook(const NamedTensors& parameters, const Group& group,
                                           const SignOptions& options) {
  return one_codec_hook(sign_codec(), parameters, group, options.common);
}

}  // namespace trireme
