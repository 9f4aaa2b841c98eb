// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/power_sgd_hook.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/clock.h"
#include "trireme/base/philox.h"
#include "trireme/grad/compression/codec_aten.h"
#include "trireme/grad/compression/codec_kernels.h"
#include "trireme/grad/compression/gram_schmidt.h"
#include "trireme/grad/compression/host_calls.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/finite.h"
#include "trireme/tensor/host_data.h"
#include "trireme/tensor/random/random.h"
#include "trireme/tensor/tied_tensors.h"

namespace trireme {
namespace {

namespace k = codec_kernels;

struct PowerSgdSlot {
  enum : int { kFirst = 30, kSecond };
};

constexpr int64_t kFlag = 16;  // floats, of which the first counts parts that are not usable

class PowerSgdCodec final : public Codec {
 public:
  PowerSgdCodec(const NamedTensors& parameters, const PowerSgdOptions& options, at::Device where)
      : options_(options),
        where_(where),
        shapes_(plan_power_sgd(parameters, options.matrix_approximation_rank,
                               options.min_compression_rate)) {
    int64_t all = 0;
    const NamedTensors once = unique_tensors(parameters);
    for (size_t p = 0; p < shapes_.size(); ++p) {
      names_.push_back(once[p].first);
      begins_.push_back(all);
      if (shapes_[p].compressed) all += rank() * shapes_[p].cols;
    }
    q_ = at::zeros({all}, at::kFloat);
    for (size_t p = 0; p < shapes_.size(); ++p)
      if (shapes_[p].compressed)
        for (int64_t j = 0; j < rank(); ++j)
          draw(p, j, 0, host_data<float>(q_) + begins_[p] + j * shapes_[p].cols);
    if (!works_on_device()) return;
    q_ = q_.to(where_);
    instead_ = all_drawn(1, rank());
  }

  std::unique_ptr<Encoded> start(const CodecInput& in) override;
  bool works_on_device() const override { return is_asynchronous(where_); }
  std::unique_ptr<DeviceEncoded> start_on_device(const DeviceCodecInput& in) override {
    const at::Tensor q = options_.warm_start ? q_ : all_drawn(in.round, 0);
    std::vector<codec_aten::PowerSgdPart> parts;
    for (const CodecPart& part : in.parts) {
      const PowerSgdShape& s = shapes_[part.parameter];
      parts.push_back({s.rows, s.cols, {}, {}});
      if (!s.compressed) continue;
      parts.back().q = vectors(q, part.parameter);
      parts.back().instead = vectors(instead_, part.parameter);
    }
    return codec_aten::power_sgd(in, std::move(parts), rank(), epsilon());
  }

  void state(StateVisitor& visitor) override {
    if (!options_.warm_start) return;
    for (size_t p = 0; p < shapes_.size(); ++p)
      if (shapes_[p].compressed) visitor.tensor("hook.q." + names_[p], vectors(q_, p));
  }
  int calls() const override { return 2; }
  std::string describe() const override { return fmt::format("PowerSGD of rank {}", rank()); }
  std::string name() const override { return "powersgd"; }

  int64_t rank() const { return options_.matrix_approximation_rank; }
  const PowerSgdShape& shape(size_t p) const { return shapes_[p]; }
  double epsilon() const { return options_.orthogonalization_epsilon; }

  /// Orthonormal vectors to begin a round with, equal on all ranks.
  void begin(size_t p, int64_t round, float* q) {
    const int64_t cols = shapes_[p].cols;
    if (options_.warm_start)
      std::copy_n(kept(p), rank() * cols, q);
    else
      for (int64_t j = 0; j < rank(); ++j) draw(p, j, round, q + j * cols);
    int64_t draws = 0;
    gram_schmidt(q, rank(), cols, 0, [&](int64_t j, float* v) {
      draw(p, j + rank() * ++draws, round + 1, v);
      return true;
    });
  }
  float* kept(size_t p) { return host_data<float>(q_) + begins_[p]; }

 private:
  at::Tensor vectors(const at::Tensor& of_all, size_t p) const {
    return of_all.narrow(0, begins_[p], rank() * shapes_[p].cols).view({rank(), shapes_[p].cols});
  }
  // Of all parameters, on the device. Nothing waits.
  at::Tensor all_drawn(int64_t round, int64_t first_vector) const {
    const at::Tensor here = host_buffer({q_.numel()}, at::kFloat, where_);
    for (size_t p = 0; p < shapes_.size(); ++p)
      for (int64_t j = 0; shapes_[p].compressed && j < rank(); ++j)
        draw(p, first_vector + j, round, host_data<float>(here) + begins_[p] + j * shapes_[p].cols);
    const at::Tensor there = at::empty({q_.numel()}, q_.options().device(where_));
    copy_in_stream_order(there, here);
    return there;
  }
  void draw(size_t p, int64_t vector, int64_t round, float* to) const {
    const uint64_t key = stable_hash({stable_hash("PowerSGD"), static_cast<uint64_t>(options_.seed),
                                      stable_hash(names_[p]), static_cast<uint64_t>(vector),
                                      static_cast<uint64_t>(round)});
    at::Tensor t = at::zeros({shapes_[p].cols}, at::kFloat);
    normal_(t, key, 0, 1);
    std::copy_n(host_data<float>(t), t.numel(), to);
  }

  const PowerSgdOptions options_;
  const at::Device where_;
  const std::vector<PowerSgdShape> shapes_;
  std::vector<std::string> names_;
  std::vector<int64_t> begins_;  // in q_
  at::Tensor q_;                 // factors of all parameters, `rank` rows of `cols` each
  at::Tensor instead_;           // on a device: others, for those that are lost
};

class PowerSgdEncoded final : public Encoded {
 public:
  PowerSgdEncoded(PowerSgdCodec& codec, const CodecInput& in)
      : codec_(codec),
        group_(in.group),
        device_(in.device),
        x_(in.x),
        parts_(in.parts),
        factor_(in.factor),
        mean_(1.0f / static_cast<float>(group_.size())) {
    int64_t first = kFlag, second = 0;
    for (const CodecPart& part : parts_) {
      first_.push_back(first);
      second_.push_back(second);
      const PowerSgdShape& s = codec_.shape(part.parameter);
      first += s.compressed ? s.rows * codec_.rank() : part.numel;
      second += s.compressed ? s.cols * codec_.rank() : 0;
    }
    left_ = in.memory.floats(group_, in.bucket, PowerSgdSlot::kFirst, first);
    right_ = in.memory.floats(group_, in.bucket, PowerSgdSlot::kSecond, second);
    float* left = host_data<float>(left_);
    float* right = host_data<float>(right_);
    const float* x = host_data<float>(x_);
    std::fill_n(left, kFlag, 0.0f);
    left[0] = in.usable ? 0 : 1;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const CodecPart& part = parts_[i];
      const PowerSgdShape& s = codec_.shape(part.parameter);
      if (s.compressed) {
        codec_.begin(part.parameter, in.round, right + second_[i]);
        k::project_rows(x + part.offset, s.rows, s.cols, right + second_[i], codec_.rank(),
                        left + first_[i]);
      } else {
        std::copy_n(x + part.offset, part.numel, left + first_[i]);
      }
    }
    bytes = 2 * (group_.size() - 1) * 4 * (first + second) / group_.size();
    work_ = host_calls::all_reduce(group_, left_, device_);
  }

  bool arrive() override {
    work_.wait();
    const Clock::time_point begun = Clock::now();
    float* left = host_data<float>(left_);
    const bool usable = left[0] == 0 && all_finite(left_);
    const float* x = host_data<float>(x_);
    for (size_t i = 0; usable && i < parts_.size(); ++i) {
      const PowerSgdShape& s = codec_.shape(parts_[i].parameter);
      if (!s.compressed) continue;
      gram_schmidt(left + first_[i], codec_.rank(), s.rows, codec_.epsilon(),
                   [](int64_t, float*) { return false; });
      k::project_cols(x + parts_[i].offset, s.rows, s.cols, left + first_[i], codec_.rank(),
                      host_data<float>(right_) + second_[i]);
    }
    seconds = seconds_since(begun);
    if (usable && right_.numel() > 0) work_ = host_calls::all_reduce(group_, right_, device_);
    return usable;
  }

  void finish() override { work_.wait(); }

  void decode(int64_t begin, int64_t end, float* error) override {
    float* x = host_data<float>(x_);
    if (error) std::fill_n(error, end - begin, 0.0f);
    auto part = std::partition_point(parts_.begin(), parts_.end(), [&](const CodecPart& p) {
      return p.offset + p.numel <= begin;
    });
    for (; part != parts_.end() && part->offset < end; ++part) {
      const auto i = static_cast<size_t>(part - parts_.begin());
      const int64_t from = std::max(begin, part->offset) - part->offset;
      const int64_t to = std::min(end, part->offset + part->numel) - part->offset;
      if (from >= to) continue;
      float* here = x + part->offset + from;
      float* left_over = error ? error + (part->offset + from - begin) : nullptr;
      if (codec_.shape(part->parameter).compressed)
        multiply(i, from, to, here, left_over);
      else
        k::scale(host_data<float>(left_) + first_[i] + from, to - from, factor_, here);
    }
  }

  void commit() override {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const PowerSgdShape& s = codec_.shape(parts_[i].parameter);
      if (s.compressed)
        k::scale(host_data<float>(right_) + second_[i], codec_.rank() * s.cols, mean_,
                 codec_.kept(parts_[i].parameter));
    }
  }

 private:
  // Elements [from, to) of part i, row by row.
  void multiply(size_t i, int64_t from, int64_t to, float* x, float* error) {
    const PowerSgdShape& s = codec_.shape(parts_[i].parameter);
    const float* left = host_data<float>(left_) + first_[i];
    const float* right = host_data<float>(right_) + second_[i];
    row_.resize(static_cast<size_t>(std::min(s.cols, to - from)));
    for (int64_t e = from; e < to;) {
      const int64_t row = e / s.cols, col = e % s.cols, n = std::min(to - e, s.cols - col);
      k::row_of_product(left + row, s.rows, right + col, s.cols, codec_.rank(), n, row_.data());
      if (error) k::error_of(x + (e - from), row_.data(), mean_, n, error + (e - from));
      k::scale(row_.data(), n, factor_, x + (e - from));
      e += n;
    }
  }

  PowerSgdCodec& codec_;
  Group group_;
  const at::Device device_;
  at::Tensor x_;
  const std::vector<CodecPart>& parts_;
  const float factor_, mean_;
  std::vector<int64_t> first_, second_;  // where a part's floats begin in left_ and right_
  at::Tensor left_, right_;              // P's and what is not compressed; Q's
  std::vector<float> row_;
  Work work_;
};

std::unique_ptr<Encoded> PowerSgdCodec::start(const CodecInput& in) {
  return std::make_unique<PowerSgdEncoded>(*this, in);
}

}  // namespace

std::unique_ptr<Codec> power_sgd_codec(const NamedTensors& parameters,
                                       const PowerSgdOptions& options, at::Device where) {
  return std::make_unique<PowerSgdCodec>(parameters, options, where);
}

std::shared_ptr<CompressionHook> power_sgd_hook(const NamedTensors& parameters, const Group& group,
                                                const PowerSgdOptions& options) {
  const at::Device where = parameters.empty() ? at::kCPU : parameters.front().second.device();
  return one_codec_hook(power_sgd_codec(parameters, options, where), parameters, group,
                        options.common);
}

}  // namespace trireme
