// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/dummy.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/tensor/random/random.h"

namespace trireme {
namespace {

constexpr int64_t kPool = int64_t{1} << 20;

class Dummy : public DataSource {
 public:
  explicit Dummy(const DummyOptions& options) : options_(options) {
    for (auto n : options.input_shape) {
      check<UsageError>(n >= 1, "dummy data: an input size of {}: sizes are at least 1", n);
      width_ *= n;
    }
    check<UsageError>(options.samples >= 1, "dummy data: {} samples: at least 1 is needed",
                      options.samples);
    check<UsageError>(options.classes >= 1, "dummy data: {} classes: at least 1 is needed",
                      options.classes);
    check<UsageError>(!options.tokens || options.input_shape.size() == 1,
                      "dummy tokens: the input shape must be the context alone");
    const double edge = std::sqrt(3.0);  // of a uniform variable with variance 1
    pool_ = at::empty({kPool + width_ + 1}, at::dtype(at::kFloat));
    uniform_(pool_, stable_hash({options.seed, 1}), options.tokens ? 0 : -edge,
             options.tokens ? 1 : edge);
  }

  int64_t size() const override { return options_.samples; }

  MicroBatch get(const std::vector<int64_t>& ids) const override {
    return options_.tokens ? tokens(ids) : values(ids);
  }

  std::string describe() const override {
    std::string shape;
    for (auto n : options_.input_shape) shape += (shape.empty() ? "" : "×") + std::to_string(n);
    const std::string count =
        options_.samples == DummyOptions{}.samples ? "" : fmt::format("{} samples, ", size());
    return fmt::format("dummy: {}random {} of {}, {} classes", count,
                       options_.tokens ? "tokens" : "values", shape, options_.classes);
  }

 private:
  uint64_t hash(int64_t id) const {
    return stable_hash({options_.seed, 2, static_cast<uint64_t>(id)});
  }
  const float* at_hash(uint64_t h) const {
    return pool_.data_ptr<float>() + below(h, static_cast<uint64_t>(kPool));
  }

  MicroBatch values(const std::vector<int64_t>& ids) const {
    const auto b = static_cast<int64_t>(ids.size());
    auto shape = options_.input_shape;
    shape.insert(shape.begin(), b);
    MicroBatch batch{at::empty(shape, at::dtype(at::kFloat)), at::empty({b}, at::dtype(at::kLong)),
                     ids, b};
    auto* out = batch.input.data_ptr<float>();
    auto* target = batch.target.data_ptr<int64_t>();
    for (const auto id : ids) {
      const auto h = hash(id);
      out = std::copy_n(at_hash(h), width_, out);
      *target++ = static_cast<int64_t>(below(mix64(h), static_cast<uint64_t>(options_.classes)));
    }
    return batch;
  }

  MicroBatch tokens(const std::vector<int64_t>& ids) const {
    const auto b = static_cast<int64_t>(ids.size());
    MicroBatch batch{at::empty({b, width_}, at::dtype(at::kLong)),
                     at::empty({b, width_}, at::dtype(at::kLong)), ids, b * width_};
    auto* input = batch.input.data_ptr<int64_t>();
    auto* target = batch.target.data_ptr<int64_t>();
    const auto vocabulary = static_cast<float>(options_.classes);
    for (const auto id : ids) {
      const float* from = at_hash(hash(id));
      auto token = [&](int64_t i) {
        return std::min(static_cast<int64_t>(from[i] * vocabulary), options_.classes - 1);
      };
      // The pool is one longer than a sample everywhere, so the last target has a number of its
      // own.
      for (int64_t i = 0; i < width_; ++i) *input++ = token(i);
      for (int64_t i = 1; i <= width_; ++i) *target++ = token(i);
    }
    return batch;
  }

  DummyOptions options_;
  int64_t width_ = 1;
  at::Tensor pool_;
};

}  // namespace

std::shared_ptr<DataSource> make_dummy(const DummyOptions& options) {
  return std::make_shared<Dummy>(options);
}

}  // namespace trireme
