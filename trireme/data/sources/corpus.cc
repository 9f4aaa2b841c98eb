// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/corpus.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/data/sources/byte_view.h"
#include "trireme/data/sources/corpus_text.h"

namespace trireme {
namespace {

class Windows : public DataSource {
 public:
  Windows(std::shared_ptr<const CorpusText> text, ByteView view, int64_t files,
          const CorpusOptions& options)
      : text_(std::move(text)),
        view_(std::move(view)),
        files_(files),
        context_(options.context),
        end_(options.end_of_document) {}

  int64_t size() const override { return (view_.size() - 1) / context_; }

  MicroBatch get(const std::vector<int64_t>& ids) const override {
    const auto b = static_cast<int64_t>(ids.size());
    MicroBatch batch{at::empty({b, context_}, at::dtype(at::kLong)),
                     at::empty({b, context_}, at::dtype(at::kLong)), ids, b * context_};
    auto* input = batch.input.data_ptr<int64_t>();
    auto* target = batch.target.data_ptr<int64_t>();
    std::vector<uint8_t> bytes(static_cast<size_t>(context_) + 1);
    for (const auto id : ids) {
      view_.read(id * context_, bytes);
      input = std::copy(bytes.begin(), bytes.end() - 1, input);
      target = std::copy(bytes.begin() + 1, bytes.end(), target);
    }
    if (end_) leave_out_ends(batch);
    return batch;
  }

  std::string describe() const override {
    const auto windows = size();
    auto text = fmt::format(
        "corpus: {} files, {:.1f} MB, {} windows of {} bytes", files_,
        static_cast<double>(view_.size()) / 1e6,
        windows < 10000 ? std::to_string(windows) : fmt::format("{}k", windows / 1000), context_);
    if (end_) text += fmt::format(", documents ended by byte {}", *end_);
    if (text_->left_out)
      text += fmt::format(" ({} binary or empty files left out)", text_->left_out);
    return text;
  }

 private:
  // Behind a document's last byte another one begins, which it does not tell of.
  void leave_out_ends(MicroBatch& batch) const {
    const auto* input = batch.input.data_ptr<int64_t>();
    auto* target = batch.target.data_ptr<int64_t>();
    batch.weight = 0;
    for (size_t row = 0; row < batch.samples.size(); ++row) {
      int64_t counted = 0;
      for (int64_t t = 0; t < context_; ++t, ++input, ++target)
        if (*input == *end_)
          *target = kNoTarget;
        else
          ++counted;
      batch.row_weights.push_back(counted);
      batch.weight += counted;
    }
  }

  std::shared_ptr<const CorpusText> text_;
  ByteView view_;
  int64_t files_, context_;
  std::optional<uint8_t> end_;
};

}  // namespace

Corpus open_corpus(const CorpusOptions& options) {
  check<UsageError>(!options.paths.empty(), "the corpus has no path: give files, folders or globs");
  check<UsageError>(options.context >= 1, "the corpus' context is {} bytes: it must be at least 1",
                    options.context);
  check<UsageError>(options.validation_fraction >= 0 && options.validation_fraction < 1,
                    "the corpus' validation fraction is {}: it must be at least 0 and below 1",
                    options.validation_fraction);
  std::shared_ptr<const CorpusText> text = open_corpus_text(options.paths, options.extensions);
  const int64_t window = options.context + 1;
  const bool validate = options.validation_fraction > 0;
  const size_t count = text->files.size();

  const auto end = options.end_of_document;
  int64_t total = 0;
  Corpus corpus;
  corpus.identity = stable_hash({static_cast<uint64_t>(options.context),
                                 static_cast<uint64_t>(options.validation_fraction * 1e9)});
  if (end) corpus.identity = stable_hash({corpus.identity, uint64_t{0x656e64}, uint64_t{*end}});
  for (size_t i = 0; i < count; ++i) {
    total += text->length(i);
    corpus.identity = stable_hash(
        {corpus.identity, stable_hash(text->names[i]), static_cast<uint64_t>(text->length(i))});
  }
  corpus.contents = hash_of_contents(*text);
  check<UsageError>(
      total >= window * (validate ? 2 : 1),
      "the corpus {} holds {} bytes, fewer than {} of context + 1 = {} bytes{}: give more "
      "text or a shorter context",
      text->where, total, validate ? "two windows" : "one window", window,
      validate ? " (training and validation need one each)" : "");

  auto wanted = static_cast<int64_t>(options.validation_fraction * static_cast<double>(total));
  wanted = std::clamp(wanted, window, total - window);
  const auto held =
      validate ? pick_held_out(*text, wanted, total, window) : std::vector<bool>(count);
  const auto held_files = std::count(held.begin(), held.end(), true);
  const uint8_t file_end = end.value_or('\n');
  ByteView train(file_end), validation(file_end);
  for (size_t i = 0; i < count; ++i) (held[i] ? validation : train).append(text->files[i].bytes());
  auto train_files = static_cast<int64_t>(count) - held_files;
  auto validation_files = static_cast<int64_t>(held_files);
  if (validate && held_files == 0) {
    std::tie(train, validation) = train.split(total - wanted);
    validation_files = validation.pieces();
    train_files = train.pieces();
  }
  corpus.train = std::make_shared<Windows>(text, std::move(train), train_files, options);
  if (validate)
    corpus.validation =
        std::make_shared<Windows>(text, std::move(validation), validation_files, options);
  return corpus;
}

}  // namespace trireme
