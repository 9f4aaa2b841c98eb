// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/top_k_hook.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/grad/codec_kernels.h"

namespace trireme {
namespace {

enum Slot : int { kOwn = 20, kAll };

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
  if (n > 2 * kSample && k < n / 4) {
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

// Of a parameter's elements.
int64_t share(const CodecPart& part, double density) {
  const double wanted = std::ceil(density * static_cast<double>(part.numel));
  return std::clamp<int64_t>(static_cast<int64_t>(wanted), 0, part.numel);
}
int64_t elements(const CodecInput& in, double density) {
  int64_t all = 0;
  for (const CodecPart& part : in.parts) all += share(part, density);
  return all;
}

// int32 count-many indices, then as many values, behind a flag (1: not usable).
class TopKEncoded final : public Encoded {
 public:
  TopKEncoded(const CodecInput& in, double density)
      : group_(in.group),
        x_(in.x),
        factor_(in.factor),
        ranks_(group_.size()),
        k_(elements(in, density)),
        each_((16 + 8 * k_ + 15) / 16 * 16),
        own_(in.memory.bytes(group_, in.bucket, kOwn, each_)),
        all_(in.memory.bytes(group_, in.bucket, kAll, ranks_ * each_)) {
    char* own = static_cast<char*>(own_.data_ptr());
    std::memset(own, 0, 16);
    *reinterpret_cast<float*>(own) = in.usable ? 0 : 1;
    const float* x = x_.data_ptr<float>();
    auto* index = reinterpret_cast<int32_t*>(own + 16);
    auto* value = reinterpret_cast<float*>(own + 16 + 4 * k_);
    for (const CodecPart& part : in.parts)
      for (int32_t i : largest_elements(x + part.offset, part.numel, share(part, density))) {
        *index = i + static_cast<int32_t>(part.offset);
        *value++ = x[*index++];
      }
    bytes = (ranks_ - 1) * each_;
    work_ = group_.all_gather_into_tensor(all_, own_);
  }

  bool arrive() override {
    work_.wait();
    bool usable = true;
    for (int64_t r = 0; r < ranks_; ++r) {
      usable &= *reinterpret_cast<const float*>(at(r)) == 0;
      const int32_t* index = indices_of(r);
      int32_t before = -1;
      bool ascending = true;
      for (int64_t i = 0; i < k_; ++i) {
        ascending &= index[i] > before;
        before = index[i];
      }
      check<Corrupt>(ascending && before < x_.numel(),
                     "compression: the elements that rank {} sent are not of this bucket of {}", r,
                     x_.numel());
    }
    return usable;
  }

  void decode(int64_t begin, int64_t end, float* error) override {
    float* x = x_.data_ptr<float>();
    if (error) {
      std::copy_n(x + begin, end - begin, error);
      for_each(group_.rank(), begin, end, [&](int64_t i, float) { error[i - begin] = 0; });
    }
    std::fill_n(x + begin, end - begin, 0.0f);
    for (int64_t r = 0; r < ranks_; ++r)
      for_each(r, begin, end, [&](int64_t i, float value) { x[i] += value * factor_; });
  }

 private:
  template <class F>
  void for_each(int64_t r, int64_t begin, int64_t end, F f) const {
    const int32_t* indices = indices_of(r);
    const auto* values = reinterpret_cast<const float*>(indices + k_);
    const int32_t* last = indices + k_;
    for (const int32_t* i = std::lower_bound(indices, last, begin); i != last && *i < end; ++i)
      f(*i, values[i - indices]);
  }
  const char* at(int64_t r) const { return static_cast<const char*>(all_.data_ptr()) + r * each_; }
  const int32_t* indices_of(int64_t r) const {
    return reinterpret_cast<const int32_t*>(at(r) + 16);
  }

  Group group_;
  at::Tensor x_;
  const float factor_;
  const int64_t ranks_, k_, each_;
  at::Tensor own_, all_;
  Work work_;
};

class TopKCodec final : public Codec {
 public:
  explicit TopKCodec(double density) : density_(density) {}
  std::unique_ptr<Encoded> start(const CodecInput& in) override {
    check<UsageError>(in.x.numel() < int64_t{1} << 31,
                      "compression: top-k knows buckets below 2^31 elements, not {}", in.x.numel());
    return std::make_unique<TopKEncoded>(in, density_);
  }
  int calls() const override { return 1; }
  std::string describe() const override {
    return fmt::format("the largest {:g} % of elements", 100 * density_);
  }
  std::string name() const override { return "topk"; }

 private:
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
