// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/int8_hook.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/grad/compression/codec_aten.h"
#include "trireme/grad/compression/codec_kernels.h"
#include "trireme/grad/compression/codec_wire.h"
#include "trireme/grad/compression/host_calls.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

namespace k = codec_kernels;

struct Int8Slot {
  enum : int { kSent = 0, kGot, kOwn, kAll, kSum };
};

// One rank's share of a bucket as bytes.
struct Payload : codec_wire::Int8 {
  using Int8::Int8;
  static float& flag(void* p) { return *static_cast<float*>(p); }
  static float* scales_of(void* p) {
    return reinterpret_cast<float*>(static_cast<char*>(p) + kHeader);
  }
  int8_t* values_of(void* p) const {
    return reinterpret_cast<int8_t*>(static_cast<char*>(p) + values());
  }
};

class Int8Encoded final : public Encoded {
 public:
  Int8Encoded(const CodecInput& in, int64_t block)
      : group_(in.group),
        device_(in.device),
        x_(in.x),
        factor_(in.factor),
        block_(block),
        ranks_(group_.size()),
        payload_(x_.numel(), ranks_, block),
        share_(payload_.share),
        sent_(in.memory.bytes(group_, in.bucket, Int8Slot::kSent, ranks_ * payload_.bytes)),
        got_(in.memory.bytes(group_, in.bucket, Int8Slot::kGot, ranks_ * payload_.bytes)),
        own_(in.memory.bytes(group_, in.bucket, Int8Slot::kOwn, payload_.bytes)),
        all_(in.memory.bytes(group_, in.bucket, Int8Slot::kAll, ranks_ * payload_.bytes)),
        sum_(in.memory.floats(group_, in.bucket, Int8Slot::kSum, share_)) {
    for (int64_t r = 0; r < ranks_; ++r) {
      char* p = at(sent_, r);
      std::memset(p, 0, Payload::kHeader);
      Payload::flag(p) = in.usable ? 0 : 1;
      k::quantize(host_data<float>(x_) + begin_of(r), length_of(r), block_, Payload::scales_of(p),
                  payload_.values_of(p));
    }
    bytes = 2 * (ranks_ - 1) * payload_.bytes;
    work_ = host_calls::all_to_all(group_, got_, sent_, device_);
  }

  bool arrive() override {
    work_.wait();
    const Clock::time_point begun = Clock::now();
    add_up();
    // Every rank heard of every part that is not usable.
    bool usable = true;
    for (int64_t r = 0; r < ranks_; ++r) usable &= Payload::flag(at(got_, r)) == 0;
    seconds = seconds_since(begun);
    work_ = host_calls::all_gather(group_, all_, own_, device_);
    return usable;
  }

  void finish() override { work_.wait(); }

  void decode(int64_t begin, int64_t end, float* error) override {
    float* x = host_data<float>(x_);
    for (int64_t r = begin / share_; r < ranks_ && begin_of(r) < end; ++r) {
      const int64_t from = std::max(begin, begin_of(r)) - begin_of(r);
      const int64_t to = std::min(end, begin_of(r) + length_of(r)) - begin_of(r);
      if (from >= to) continue;
      float* here = x + begin_of(r) + from;
      if (error) {
        float* left = error + (begin_of(r) + from - begin);
        char* p = at(sent_, r);
        k::dequantize_subtract(payload_.values_of(p), Payload::scales_of(p), block_, from, to, here,
                               left);
        // What the sum lost when it was rounded is its owner's to send again.
        if (r == group_.rank()) k::add_to(host_data<float>(sum_) + from, to - from, left);
      }
      char* p = at(all_, r);
      k::dequantize(payload_.values_of(p), Payload::scales_of(p), block_, from, to, factor_, here);
    }
  }

 private:
  int64_t begin_of(int64_t r) const { return payload_.begin_of(r); }
  int64_t length_of(int64_t r) const { return payload_.length_of(r); }
  char* at(const at::Tensor& t, int64_t r) const { return host_bits<char>(t) + r * payload_.bytes; }

  // This rank's share: sum, rounded sum into own_, and what that lost stays in sum_.
  void add_up() {
    float* sum = host_data<float>(sum_);
    char* own = host_bits<char>(own_);
    std::memset(own, 0, Payload::kHeader);
    const int64_t n = length_of(group_.rank());
    const int64_t chunk = std::max<int64_t>(1, 8192 / block_) * block_;
    for (int64_t begin = 0; begin < n; begin += chunk) {
      const int64_t end = std::min(n, begin + chunk);
      std::fill_n(sum + begin, end - begin, 0.0f);
      for (int64_t r = 0; r < ranks_; ++r) {
        char* p = at(got_, r);
        k::dequantize_add(payload_.values_of(p), Payload::scales_of(p), block_, begin, end,
                          sum + begin);
      }
      k::quantize(sum + begin, end - begin, block_, Payload::scales_of(own) + begin / block_,
                  payload_.values_of(own) + begin);
      k::dequantize_subtract(payload_.values_of(own), Payload::scales_of(own), block_, begin, end,
                             sum + begin, sum + begin);
    }
  }

  Group group_;
  const at::Device device_;
  at::Tensor x_;
  const float factor_;
  const int64_t block_, ranks_;
  const Payload payload_;
  const int64_t share_;
  at::Tensor sent_, got_, own_, all_, sum_;
  Work work_;
};

class Int8Codec final : public Codec {
 public:
  explicit Int8Codec(int64_t block) : block_(block) {}
  std::unique_ptr<Encoded> start(const CodecInput& in) override {
    return std::make_unique<Int8Encoded>(in, block_);
  }
  bool works_on_device() const override { return true; }
  std::unique_ptr<DeviceEncoded> start_on_device(const DeviceCodecInput& in) override {
    return codec_aten::int8(in, block_);
  }
  int calls() const override { return 2; }
  std::string describe() const override { return fmt::format("int8, blocks of {}", block_); }
  std::string name() const override { return "int8"; }

 private:
  const int64_t block_;
};

}  // namespace

std::unique_ptr<Codec> int8_codec(int64_t block) {
  check<UsageError>(block >= 8 && block <= 65536,
                    "compression: blocks of {} elements: choose 8 to 65536", block);
  return std::make_unique<Int8Codec>(block);
}

std::shared_ptr<CompressionHook> int8_hook(const NamedTensors& parameters, const Group& group,
                                           const Int8Options& options) {
  return one_codec_hook(int8_codec(options.block), parameters, group, options.common);
}

}  // namespace trireme
