// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/data/sources/question_source.h"

namespace trireme {
namespace {

constexpr int kSpecials = 3;

class DummyQuestions final : public DataSource {
 public:
  explicit DummyQuestions(const DummyQuestionOptions& options) : o_(options) {
    check<UsageError>(o_.samples >= 1, "dummy questions: {} samples: at least 1 is needed",
                      o_.samples);
    check<UsageError>(o_.max_question >= 1 && o_.max_length > o_.max_question + kSpecials,
                      "dummy questions: max_length {} leaves no room for a document beside "
                      "max_question {} and {} special pieces",
                      o_.max_length, o_.max_question, kSpecials);
    for (const int32_t piece : {o_.padding, o_.unknown, o_.first, o_.separator})
      check<UsageError>(piece >= 0 && piece < o_.vocabulary,
                        "dummy questions: a special piece is {}, and there are {} pieces", piece,
                        o_.vocabulary);
    check<UsageError>(o_.vocabulary >= 2 && o_.vocabulary <= int64_t{1} << 31,
                      "dummy questions: a vocabulary of {} pieces", o_.vocabulary);
  }

  int64_t size() const override { return o_.samples; }
  MicroBatch get(const std::vector<int64_t>& ids) const override { return get_in_epoch(ids, 0); }

  MicroBatch get_in_epoch(const std::vector<int64_t>& ids, int64_t epoch) const override {
    const auto rows = static_cast<int64_t>(ids.size());
    const uint64_t key =
        stable_hash({stable_hash("dummy questions"), o_.seed, static_cast<uint64_t>(epoch)});
    MicroBatch batch;
    batch.input = at::empty({rows, o_.max_length}, at::kLong);
    auto* at = batch.input.data_ptr<int64_t>();
    for (const int64_t id : ids) at = draw(key, id, at);
    batch.samples = ids;
    batch.weight = rows;
    at::Tensor types = at::zeros({rows, o_.max_length}, at::kLong);
    types.narrow(1, o_.max_question + 2, o_.max_length - o_.max_question - 2).fill_(1);
    const auto each = [&](double value, at::ScalarType type) {
      return at::full({rows}, value, type);
    };
    batch.more = {{"token_types", std::move(types)},
                  {"attention_mask", at::full({rows, o_.max_length}, 1, at::kLong)},
                  {"start_ids", each(0, at::kLong)},
                  {"end_ids", each(o_.max_length - 1, at::kLong)},
                  {"classes", each(0, at::kLong)},
                  {"start_positions", each(0, at::kFloat)},
                  {"end_positions", each(1, at::kFloat)}};
    return batch;
  }

  std::string describe() const override {
    return fmt::format("dummy questions: {} samples of {} random pieces", o_.samples,
                       o_.max_length);
  }

 private:
  int64_t* draw(uint64_t key, int64_t id, int64_t* out) const {
    uint64_t block = 0;
    PhiloxBlock random{};
    size_t used = random.size();
    const auto piece = [&] {
      if (used == random.size()) {
        random = philox_block(key, static_cast<uint64_t>(id), block++);
        used = 0;
      }
      const uint64_t choices = static_cast<uint64_t>(o_.vocabulary) - 1;
      const auto drawn = static_cast<int64_t>(1 + (random[used++] * choices >> 32));
      const bool special = drawn == o_.padding || drawn == o_.first || drawn == o_.separator;
      return special ? o_.unknown : drawn;
    };
    *out++ = o_.first;
    out = std::generate_n(out, o_.max_question, piece);
    *out++ = o_.separator;
    out = std::generate_n(out, o_.max_length - o_.max_question - kSpecials, piece);
    *out++ = o_.separator;
    return out;
  }

  const DummyQuestionOptions o_;
};

}  // namespace

std::shared_ptr<DataSource> make_dummy_questions(const DummyQuestionOptions& options) {
  return std::make_shared<DummyQuestions>(options);
}

}  // namespace trireme
