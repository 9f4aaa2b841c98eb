// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/question_source.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/data/sources/cut_questions.h"

namespace trireme {
namespace {

using Shared = std::shared_ptr<const CutQuestions>;

template <class T>
at::Tensor tensor_of(const std::vector<T>& values, at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor out = at::empty(shape, type);
  std::memcpy(out.data_ptr(), values.data(), values.size() * sizeof(T));
  return out;
}

MicroBatch batch_of(std::span<const QuestionSample> samples, const std::vector<int64_t>& ids,
                    int32_t padding) {
  const QuestionBatch rows = collate(samples, padding);
  const auto matrix = [&](const std::vector<int64_t>& values) {
    return tensor_of(values, {rows.rows, rows.length}, at::kLong);
  };
  const auto numbers = [&](const std::vector<int64_t>& values) {
    return tensor_of(values, {rows.rows}, at::kLong);
  };
  MicroBatch batch;
  batch.input = matrix(rows.input_ids);
  batch.samples = ids;
  batch.weight = rows.rows;
  batch.more = {{"token_types", matrix(rows.token_types)},
                {"attention_mask", matrix(rows.attention_mask)},
                {"start_ids", numbers(rows.start_ids)},
                {"end_ids", numbers(rows.end_ids)},
                {"classes", numbers(rows.classes)},
                {"start_positions", tensor_of(rows.start_positions, {rows.rows}, at::kFloat)},
                {"end_positions", tensor_of(rows.end_positions, {rows.rows}, at::kFloat)}};
  return batch;
}

/// Samples that are questions, or chunks of questions.
class Source : public QuestionSource {
 public:
  Source(Shared all, std::vector<int64_t> numbers)
      : all_(std::move(all)), numbers_(std::move(numbers)) {}

  MicroBatch get_in_epoch(const std::vector<int64_t>& ids, int64_t epoch) const override {
    std::vector<QuestionSample> samples(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      check<UsageError>(ids[i] >= 0 && ids[i] < size(), "{}: there is no sample {}: there are {}",
                        all_->file().path(), ids[i], size());
      show(ids[i], epoch, &samples[i]);
    }
    return batch_of(samples, ids, all_->vocabulary().padding());
  }

  int64_t questions() const override { return static_cast<int64_t>(numbers_.size()); }
  Question read(int64_t question) const override {
    Question out;
    all_->file().read(question, &out);
    return out;
  }

 protected:
  virtual void show(int64_t sample, int64_t epoch, QuestionSample* out) const = 0;
  std::string about(const std::string& samples) const {
    return fmt::format(
        "questions: {} of {} ({}), {}", questions(), all_->file().path(),
        all_->file().format() == QuestionFormat::squad ? "SQuAD" : "Natural Questions", samples);
  }

  const Shared all_;
  const std::vector<int64_t> numbers_;  // of the questions, in the file
};

class TrainSource final : public Source {
 public:
  TrainSource(Shared all, std::vector<int64_t> numbers, uint64_t seed)
      : Source(std::move(all), std::move(numbers)), seed_(seed) {}

  int64_t size() const override { return questions(); }
  int64_t question_of(int64_t sample) const override {
    return numbers_.at(static_cast<size_t>(sample));
  }
  std::string text_of(int64_t, int32_t, int32_t) const override {
    fail<UsageError>(
        "a sample of training data shows another chunk in each epoch: ask held-out "
        "data for texts");
  }
  std::string describe() const override {
    return about(fmt::format("a chunk of up to {} pieces of each", all_->options().max_length));
  }

 private:
  void show(int64_t sample, int64_t epoch, QuestionSample* out) const override {
    const int64_t number = question_of(sample);
    const auto cut = all_->cut(number);
    cut->sample(cut->choose(all_->options(), seed_, epoch, number), all_->options(),
                all_->vocabulary(), out);
  }
  const uint64_t seed_;
};

class HeldOutSource final : public Source {
 public:
  HeldOutSource(Shared all, std::vector<int64_t> numbers)
      : Source(std::move(all), std::move(numbers)) {
    for (const int64_t number : numbers_) {
      first_.push_back(size_);
      size_ += static_cast<int64_t>(all_->cut(number)->chunks.size());
    }
  }

  int64_t size() const override { return size_; }
  int64_t question_of(int64_t sample) const override { return numbers_[place(sample)]; }

  std::string text_of(int64_t sample, int32_t start_id, int32_t end_id) const override {
    const size_t at = place(sample);
    const auto cut = all_->cut(numbers_[at]);
    const DocumentChunk& chunk = cut->chunks[static_cast<size_t>(sample - first_[at])];
    const auto before = static_cast<int32_t>(cut->question.size()) + 2;
    const auto pieces = static_cast<int32_t>(chunk.end - chunk.begin);
    check<UsageError>(before <= start_id && start_id < end_id && end_id <= before + pieces,
                      "pieces {} to {} of a row whose chunk is {} to {}", start_id, end_id, before,
                      before + pieces);
    return all_->text_of(numbers_[at], chunk.begin + static_cast<uint32_t>(start_id - before),
                         chunk.begin + static_cast<uint32_t>(end_id - before));
  }

  std::string describe() const override {
    return about(fmt::format("{} chunks of up to {} pieces", size_, all_->options().max_length));
  }

 private:
  size_t place(int64_t sample) const {
    check<UsageError>(sample >= 0 && sample < size_, "{}: there is no chunk {}: there are {}",
                      all_->file().path(), sample, size_);
    const auto behind = std::upper_bound(first_.begin(), first_.end(), sample);
    return static_cast<size_t>(behind - first_.begin()) - 1;
  }
  void show(int64_t sample, int64_t /*epoch*/, QuestionSample* out) const override {
    const size_t at = place(sample);
    all_->cut(numbers_[at])
        ->sample(static_cast<size_t>(sample - first_[at]), all_->options(), all_->vocabulary(),
                 out);
  }

  std::vector<int64_t> first_;  // sample of each question
  int64_t size_ = 0;
};

uint64_t hash_of(const QuestionOptions& o, const Vocabulary& vocabulary) {
  uint64_t hash = stable_hash({stable_hash("question options"), o.seed});
  const auto add = [&](uint64_t value) { hash = stable_hash({hash, value}); };
  for (const int value :
       {o.chunks.max_length, o.chunks.max_question, o.chunks.stride, int{o.chunks.by_sentence},
        int{o.chunks.drop_tags}, int{o.word_piece.lower_case}, int{o.word_piece.split_cjk},
        int{o.word_piece.strip_accents.value_or(o.word_piece.lower_case)},
        o.word_piece.max_word_chars})
    add(static_cast<uint64_t>(value));
  for (const double weight : o.chunks.weights) add(std::bit_cast<uint64_t>(weight));
  for (int32_t id = 0; id < vocabulary.size(); ++id) add(stable_hash(vocabulary.piece(id)));
  return hash;
}

}  // namespace

QuestionData open_questions(const QuestionOptions& options) {
  check<UsageError>(!options.path.empty(), "questions: no file is given");
  check<UsageError>(!options.vocabulary.empty(),
                    "questions: no vocabulary is given: take the vocab.txt that belongs to the "
                    "weights");
  check<UsageError>(options.keep_bytes >= 0, "questions: keep_bytes is {}: bytes, 0 for none",
                    options.keep_bytes);
  const bool second_file = !options.held_out_path.empty();
  check<UsageError>(!second_file || options.held_out_fraction.value_or(0) == 0,
                    "questions: {} is held out, and a fraction of {}, too: give one of them",
                    options.held_out_path, options.path);
  const double fraction = options.held_out_fraction.value_or(second_file ? 0 : 0.05);

  QuestionData data;
  data.vocabulary = std::make_shared<const Vocabulary>(
      Vocabulary::from_file(options.vocabulary, options.special));
  data.identity = hash_of(options, *data.vocabulary);
  QuestionChunker checker(WordPieceTokenizer(data.vocabulary, options.word_piece), options.chunks);
  const auto open = [&](const std::string& path) {
    const QuestionFileOptions of_file{.format = options.format, .bad = options.bad};
    std::shared_ptr<const PreparedQuestions> prepared;
    if (!options.prepared_folder.empty())
      prepared = prepare_questions(path, data.vocabulary,
                                   {.folder = options.prepared_folder,
                                    .file = of_file,
                                    .word_piece = options.word_piece,
                                    .drop_tags = options.chunks.drop_tags});
    QuestionFile file = prepared && prepared->of_lines()
                            ? QuestionFile::of_lines(path, prepared->lines())
                            : QuestionFile(path, of_file, [&](const Question& question) {
                                checker.check_cuttable(question);
                              });
    if (prepared && prepared->size() != file.size()) prepared = nullptr;  // SQuAD's has changed
    check<UsageError>(file.size() > 0, "{}: no questions{}", path,
                      file.bad().count() == 0
                          ? std::string()
                          : fmt::format("; {} bad ones are left out, the first: {}",
                                        file.bad().count(), file.bad().first().front()));
    data.left_out += file.bad().count();
    for (const std::string& what : file.bad().first()) data.first_left_out.push_back(what);
    data.identity = stable_hash({data.identity, file.identity()});
    return std::make_shared<const CutQuestions>(std::move(file), data.vocabulary,
                                                options.word_piece, options.chunks,
                                                options.keep_bytes, std::move(prepared));
  };

  const Shared all = open(options.path);
  StratifiedSplit split = stratified_split(all->file().classes(), fraction, options.seed);
  check<UsageError>(fraction == 0 || !split.validation.empty(),
                    "{}: {} questions are too few to hold out {} of each class: give more, a file "
                    "of its own to hold out, or a fraction of 0",
                    options.path, all->file().size(), fraction);
  data.identity = stable_hash({data.identity, std::bit_cast<uint64_t>(fraction)});
  data.train = std::make_shared<TrainSource>(all, std::move(split.train), options.seed);
  if (second_file) {
    const Shared held_out = open(options.held_out_path);
    const StratifiedSplit whole = stratified_split(held_out->file().classes(), 0, options.seed);
    data.held_out = std::make_shared<HeldOutSource>(held_out, whole.train);
  } else if (fraction > 0) {
    data.held_out = std::make_shared<HeldOutSource>(all, std::move(split.validation));
  }
  return data;
}

}  // namespace trireme
