// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/documents.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <span>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/data/sources/corpus_text.h"

namespace trireme {
namespace {

struct Document {
  const uint8_t* begin;
  int32_t tokens;  // one less than its bytes
};

// Cuts a file. What is too short to learn from (one byte) is left out.
void cut_documents(std::span<const uint8_t> bytes, int64_t context, std::vector<Document>* out) {
  const uint8_t *at = bytes.data(), *end = at + bytes.size();
  while (at < end) {
    const uint8_t* stop = std::min(end, at + context + 1);
    const uint8_t kEmptyLine[] = {'\n', '\n'};
    const uint8_t* blank = std::search(at, stop, kEmptyLine, kEmptyLine + 2);
    const bool ends = blank != stop;
    if (ends) stop = blank + 1;  // with the newline of its last line
    if (stop - at >= 2) out->push_back({at, static_cast<int32_t>(stop - at - 1)});
    // A document that was cut goes on with its last byte, which nobody has seen as an input.
    at = ends || stop == end ? stop : stop - 1;
    while (ends && at < end && *at == '\n') ++at;
  }
}

class Documents : public DataSource {
 public:
  Documents(std::shared_ptr<const CorpusText> text, std::vector<Document> documents,
            int64_t context)
      : text_(std::move(text)), documents_(std::move(documents)), context_(context) {}

  int64_t size() const override { return static_cast<int64_t>(documents_.size()); }

  MicroBatch get(const std::vector<int64_t>& ids) const override {
    const auto b = static_cast<int64_t>(ids.size());
    int64_t longest = 1;
    for (const int64_t id : ids) longest = std::max<int64_t>(longest, of(id).tokens);
    MicroBatch batch{at::zeros({b, longest}, at::dtype(at::kLong)),
                     at::full({b, longest}, kNoTarget, at::dtype(at::kLong)),
                     ids,
                     0,
                     {}};
    auto* input = batch.input.data_ptr<int64_t>();
    auto* target = batch.target.data_ptr<int64_t>();
    for (const int64_t id : ids) {
      const Document& d = of(id);
      std::copy_n(d.begin, d.tokens, input);
      std::copy_n(d.begin + 1, d.tokens, target);
      input += longest;
      target += longest;
      batch.row_weights.push_back(d.tokens);
      batch.weight += d.tokens;
    }
    return batch;
  }

  std::vector<int32_t> lengths() const override {
    std::vector<int32_t> all;
    all.reserve(documents_.size());
    for (const Document& d : documents_) all.push_back(d.tokens);
    return all;
  }

  std::string describe() const override {
    int64_t tokens = 0;
    for (const Document& d : documents_) tokens += d.tokens;
    return fmt::format("documents: {} of {:.0f} tokens on average, {} at most", size(),
                       static_cast<double>(tokens) / static_cast<double>(size()), context_);
  }

 private:
  const Document& of(int64_t id) const { return documents_[static_cast<size_t>(id)]; }

  std::shared_ptr<const CorpusText> text_;  // where the bytes are
  std::vector<Document> documents_;
  int64_t context_;
};

}  // namespace

Corpus open_documents(const CorpusOptions& options) {
  check<UsageError>(!options.paths.empty(), "the corpus has no path: give files, folders or globs");
  check<UsageError>(options.context >= 1, "the corpus' context is {} bytes: it must be at least 1",
                    options.context);
  std::shared_ptr<const CorpusText> text = open_corpus_text(options.paths, options.extensions);
  Corpus corpus;
  corpus.identity = stable_hash({uint64_t{0x646f6373}, static_cast<uint64_t>(options.context),
                                 static_cast<uint64_t>(options.validation_fraction * 1e9)});
  int64_t total = 0;
  for (size_t i = 0; i < text->files.size(); ++i) {
    total += text->length(i);
    corpus.identity = stable_hash(
        {corpus.identity, stable_hash(text->names[i]), static_cast<uint64_t>(text->length(i))});
  }
  corpus.contents = hash_of_contents(*text);
  const bool validate = options.validation_fraction > 0;
  const auto wanted =
      static_cast<int64_t>(options.validation_fraction * static_cast<double>(total));
  const auto held = validate ? pick_held_out(*text, wanted, total, options.context + 1)
                             : std::vector<bool>(text->files.size());
  std::vector<Document> train, validation;
  for (size_t i = 0; i < text->files.size(); ++i)
    cut_documents(text->files[i].bytes(), options.context, held[i] ? &validation : &train);
  if (validate && validation.empty() && train.size() > 1) {
    const auto count = std::max<size_t>(
        1, static_cast<size_t>(options.validation_fraction * static_cast<double>(train.size())));
    validation.assign(train.end() - static_cast<std::ptrdiff_t>(count), train.end());
    train.resize(train.size() - count);
  }
  check<UsageError>(!train.empty() && (!validate || !validation.empty()),
                    "the corpus {} has too little text for documents: give more", text->where);
  corpus.train = std::make_shared<Documents>(text, std::move(train), options.context);
  if (validate)
    corpus.validation = std::make_shared<Documents>(text, std::move(validation), options.context);
  return corpus;
}

}  // namespace trireme
