// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/codec.h"

#include <algorithm>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/grad/compression/codec_kernels.h"
#include "trireme/grad/compression/host_calls.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/finite.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

class PlainEncoded final : public Encoded {
 public:
  explicit PlainEncoded(const CodecInput& in) : x_(in.x), factor_(in.factor) {
    const int64_t n = in.group.size();
    bytes = 2 * (n - 1) * x_.numel() * 4 / n;
    // Told apart from a sum that is not finite by nobody: both are nobody's result.
    if (!in.usable) x_.fill_(std::numeric_limits<float>::quiet_NaN());
    work_ = host_calls::all_reduce(in.group, x_, in.device);
  }
  bool arrive() override {
    work_.wait();
    return all_finite(x_);
  }
  void decode(int64_t begin, int64_t end, float* error) override {
    float* x = host_data<float>(x_) + begin;
    if (factor_ != 1) codec_kernels::scale(x, end - begin, factor_, x);
    if (error) std::fill_n(error, end - begin, 0.0f);
  }

 private:
  at::Tensor x_;
  float factor_;
  Work work_;
};

class Plain final : public Codec {
 public:
  std::unique_ptr<Encoded> start(const CodecInput& in) override {
    return std::make_unique<PlainEncoded>(in);
  }
  int calls() const override { return 1; }
  std::string describe() const override { return "none"; }
  std::string name() const override { return "none"; }
};

}  // namespace

Encoded::~Encoded() = default;
Codec::~Codec() = default;
DeviceEncoded::~DeviceEncoded() = default;

std::unique_ptr<DeviceEncoded> Codec::start_on_device(const DeviceCodecInput&) {
  fail<UsageError>("compression: {} encodes in host memory alone", name());
}

std::unique_ptr<Codec> plain_codec() { return std::make_unique<Plain>(); }

at::Tensor WireMemory::bytes(const Group& group, int bucket, int slot, int64_t n,
                             at::Device device) {
  at::Tensor& mine = kept_[{bucket, slot}];
  if (!mine.defined() || mine.numel() < n)
    mine = group.empty({std::max<int64_t>(n, 64)}, at::TensorOptions(at::kByte).device(device));
  return mine.narrow(0, 0, n);
}

at::Tensor WireMemory::floats(const Group& group, int bucket, int slot, int64_t n,
                              at::Device device) {
  return bytes(group, bucket, slot, 4 * n, device).view(at::kFloat);
}

at::Tensor WireMemory::staging(int bucket, int slot, int64_t n, at::ScalarType dtype,
                               at::Device device) {
  at::Tensor& mine = kept_[{bucket, slot}];
  if (!mine.defined() || mine.numel() < n || mine.scalar_type() != dtype)
    mine = host_buffer({n}, dtype, device);
  return mine.narrow(0, 0, n);
}

}  // namespace trireme
