// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/top_k_hook.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/grad/compression/codec_aten.h"
#include "trireme/grad/compression/codec_kernels.h"
#include "trireme/grad/compression/host_calls.h"
#include "trireme/grad/compression/top_k_wire.h"
#include "trireme/tensor/half_cast.h"
#include "trireme/tensor/host_data.h"

namespace trireme {
namespace {

struct TopKSlot {
  enum : int { kOwn = 20, kAll };
};

constexpr int64_t kSample = 32768;

// A bound with, most likely, a little more than k of the n magnitudes above it.
float guess(const float* x, int64_t n, int64_t k) {
  const int64_t stride = n / kSample;
  std::vector<float> sample(static_cast<size_t>(kSample));
  for (int64_t i = 0; i < kSample; ++i) {
    // Not at equal distances: those may fall into one column of a matrix.
    const auto off = below(mix64(static_cast<uint64_t>(i) + 1), static_cast<uint64_t>(stride));
    sample[static_cast<size_t>(i)] = std::fabs(x[i * stride + static_cast<int64_t>(off)]);
  }
  const double wanted = static_cast<double>(k) * kSample / static_cast<double>(n);
  const double place = wanted * 1.1 + 4 * std::sqrt(wanted) + 4;
  if (place >= kSample) return 0;
  const auto nth = sample.begin() + static_cast<int64_t>(place);
  std::nth_element(sample.begin(), nth, sample.end(), std::greater<>());
  return *nth;
}

// The candidates: ascending, at least k and usually hardly more.
std::vector<int32_t> candidates(const float* x, int64_t n, int64_t k) {
  if (n > 2 * kSample && k < n / 2) {
    const float least = guess(x, n, k);
    std::vector<int32_t> found(static_cast<size_t>(std::min(n, 3 * k + 8192)));
    const auto room = static_cast<int64_t>(found.size());
    // Of a bound of zero everything would be above.
    const int64_t got = least > 0 ? codec_kernels::collect(x, n, least, found.data(), room) : 0;
    if (got >= k && got < room) {
      found.resize(static_cast<size_t>(got));
      return found;
    }
  }
  std::vector<int32_t> every(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) every[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  return every;
}

constexpr int64_t kTopKHeader = 16;  // a float: 1 where the sender's part is not usable

class TopKEncoded final : public Encoded {
 public:
  TopKEncoded(const CodecInput& in, double density)
      : group_(in.group),
        x_(in.x),
        factor_(in.factor),
        ranks_(group_.size()),
        layout_(x_.numel(), top_k::chosen(in.parts, density)),
        each_(kTopKHeader + layout_.bytes),
        own_(in.memory.bytes(group_, in.bucket, TopKSlot::kOwn, each_)),
        all_(in.memory.bytes(group_, in.bucket, TopKSlot::kAll, ranks_ * each_)) {
    char* own = host_bits<char>(own_);
    std::memset(own, 0, kTopKHeader);
    *reinterpret_cast<float*>(own) = in.usable ? 0 : 1;
    top_k::Writer writer(layout_, own + kTopKHeader);
    uint16_t* value = writer.values();
    const float* x = host_data<float>(x_);
    std::vector<float> exact;
    for (const CodecPart& part : in.parts) {
      exact.clear();
      for (int32_t i :
           largest_elements(x + part.offset, part.numel, top_k::chosen(part.numel, density))) {
        writer.add(part.offset + i);
        exact.push_back(x[part.offset + i]);
      }
      round_to_bfloat16(exact.data(), value, static_cast<int64_t>(exact.size()));
      value += exact.size();
    }
    bytes = (ranks_ - 1) * each_;
    work_ = host_calls::all_gather(group_, all_, own_, in.device);
  }

  bool arrive() override {
    work_.wait();
    bool usable = true;
    for (int64_t r = 0; r < ranks_; ++r) {
      usable &= *reinterpret_cast<const float*>(at(r)) == 0;
      readers_.emplace_back(layout_, at(r) + kTopKHeader);
      check<Corrupt>(readers_.back().valid(),
                     "compression: the elements that rank {} sent are not of this bucket of {}", r,
                     x_.numel());
    }
    return usable;
  }

  void decode(int64_t begin, int64_t end, float* error) override {
    float* x = host_data<float>(x_);
    if (error) std::copy_n(x + begin, end - begin, error);
    std::fill_n(x + begin, end - begin, 0.0f);
    for (int64_t r = 0; r < ranks_; ++r) {
      const auto* values = reinterpret_cast<const uint16_t*>(at(r) + kTopKHeader + layout_.places);
      float* left = r == group_.rank() ? error : nullptr;
      readers_[static_cast<size_t>(r)].until(end, [&](int64_t i, int64_t which) {
        const float value = std::bit_cast<float>(uint32_t{values[which]} << 16);  // bfloat16
        x[i] += value * factor_;
        if (left) left[i - begin] -= value;
      });
    }
  }

 private:
  const char* at(int64_t r) const { return host_bits<const char>(all_) + r * each_; }

  Group group_;
  at::Tensor x_;
  const float factor_;
  const int64_t ranks_;
  const top_k::Layout layout_;
  const int64_t each_;
  at::Tensor own_, all_;
  Work work_;
  std::vector<top_k::Reader> readers_;
};

class TopKCodec final : public Codec {
 public:
  explicit TopKCodec(double density) : density_(density) {}
  std::unique_ptr<Encoded> start(const CodecInput& in) override {
    check_size(in.x);
    return std::make_unique<TopKEncoded>(in, density_);
  }
  bool works_on_device() const override { return true; }
  std::unique_ptr<DeviceEncoded> start_on_device(const DeviceCodecInput& in) override {
    check_size(in.x);
    return codec_aten::top_k(in, density_);
  }
  int calls() const override { return 1; }
  std::string describe() const override {
    return fmt::format("the largest {:g} % of elements", 100 * density_);
  }
  std::string name() const override { return "topk"; }

 private:
  static void check_size(const at::Tensor& x) {
    check<UsageError>(x.numel() < int64_t{1} << 31,
                      "compression: top-k knows buckets below 2^31 elements, not {}", x.numel());
  }

  const double density_;
};

}  // namespace

std::vector<int32_t> largest_elements(const float* x, int64_t n, int64_t k) {
  std::vector<int32_t> picked;
  if (k <= 0) return picked;
  const std::vector<int32_t> among = candidates(x, n, k);
  std::vector<float> magnitudes;
  magnitudes.reserve(among.size());
  for (int32_t i : among) magnitudes.push_back(std::fabs(x[i]));
  std::nth_element(magnitudes.begin(), magnitudes.begin() + (k - 1), magnitudes.end(),
                   std::greater<>());
  const float least = magnitudes[static_cast<size_t>(k - 1)];
  int64_t equal = k - std::count_if(magnitudes.begin(), magnitudes.end(),
                                    [least](float m) { return m > least; });
  picked.reserve(static_cast<size_t>(k));
  for (int32_t i : among) {
    const float m = std::fabs(x[i]);
    if (m > least || (m == least && equal-- > 0)) picked.push_back(i);
  }
  return picked;
}

std::unique_ptr<Codec> top_k_codec(double density) {
  check<UsageError>(density > 0 && density <= 1,
                    "compression: a density of {}: choose a share of the elements above 0 and at "
                    "most 1",
                    density);
  return std::make_unique<TopKCodec>(density);
}

std::shared_ptr<CompressionHook> top_k_hook(const NamedTensors& parameters, const Group& group,
                                            const TopKOptions& options) {
  return one_codec_hook(top_k_codec(options.density), parameters, group, options.common);
}

}  // namespace trireme
