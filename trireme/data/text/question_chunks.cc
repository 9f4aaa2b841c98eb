// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/question_chunks.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/data/text/sentences.h"

namespace trireme {
namespace {

/// Behind the tag at byte `at` of the text, if there is one: a word like the regular expression
/// <.+>, which need not end it.
size_t behind_tag(std::string_view text, size_t at) {
  if (text[at] != '<') return at;
  const size_t end = std::min(text.find(' ', at), text.size());
  const size_t close = text.substr(0, end).find('>', at + 2);
  return close == std::string_view::npos ? at : end;
}

/// The first piece that does not begin before byte `at`.
uint32_t piece_at(std::span<const TextPiece> pieces, uint32_t at) {
  const auto found =
      std::lower_bound(pieces.begin(), pieces.end(), at,
                       [](const TextPiece& piece, uint32_t byte) { return piece.begin < byte; });
  return static_cast<uint32_t>(found - pieces.begin());
}

/// The first piece that reaches beyond byte `at`.
uint32_t piece_beyond(std::span<const TextPiece> pieces, uint32_t at) {
  const auto found =
      std::upper_bound(pieces.begin(), pieces.end(), at,
                       [](uint32_t byte, const TextPiece& piece) { return byte < piece.end; });
  return static_cast<uint32_t>(found - pieces.begin());
}

}  // namespace

QuestionChunker::QuestionChunker(WordPieceTokenizer tokenizer, const ChunkOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options) {
  check<UsageError>(options.max_question >= 1, "max_question is {}: it must be at least 1",
                    options.max_question);
  check<UsageError>(
      options.max_length > options.max_question + kSpecialPieces,
      "max_length {} leaves no room for a document beside max_question {} and {} special "
      "pieces",
      options.max_length, options.max_question, kSpecialPieces);
  check<UsageError>(options.stride >= 1, "stride is {}: it must be at least 1", options.stride);
  const int room = options.max_length - options.max_question - kSpecialPieces;
  check<UsageError>(options.by_sentence || options.stride <= room,
                    "a stride of {} leaves out text between chunks, which may have {} pieces",
                    options.stride, room);
  double sum = 0;
  for (const double weight : options.weights) {
    check<UsageError>(weight >= 0 && std::isfinite(weight), "a chunk's weight is {}", weight);
    sum += weight;
  }
  check<UsageError>(sum > 0, "the weights of chunks are all 0");
}

void QuestionChunker::encode_document(std::string_view all) {
  document_.clear();
  if (!options_.drop_tags) return tokenizer_.encode(all, &document_);
  const auto encode = [&](size_t begin, size_t end) {
    const size_t before = document_.size();
    tokenizer_.encode(all.substr(begin, end - begin), &document_);
    for (size_t i = before; i < document_.size(); ++i) {
      document_[i].begin += static_cast<uint32_t>(begin);
      document_[i].end += static_cast<uint32_t>(begin);
    }
  };
  size_t begin = 0;  // of what is not encoded yet
  for (size_t at = all.find('<'); at != std::string_view::npos; at = all.find('<', at)) {
    const size_t behind = at == 0 || all[at - 1] == ' ' ? behind_tag(all, at) : at;
    if (behind == at) {
      ++at;
      continue;
    }
    encode(begin, at);
    begin = at = behind;
  }
  encode(begin, all.size());
}

void QuestionChunker::cut(const Question& question) {
  QuestionPieces pieces;
  encode(question, options_.by_sentence, &pieces);
  cut_into_chunks(std::move(pieces), options_, &cut_);
}

void QuestionChunker::encode(const Question& question, QuestionPieces* out) {
  encode(question, true, out);
}

void QuestionChunker::encode(const Question& question, bool with_sentences, QuestionPieces* out) {
  cut_.chunks.clear();
  question_.clear();
  out->id = question.id;
  try {
    tokenizer_.encode(question.question, &question_);
    encode_document(question.document);
  } catch (const Corrupt& error) {
    fail<Corrupt>("{}: {}", question.where, error.what());
  }
  check<Corrupt>(!question_.empty(), "{}: the question has no piece", question.where);
  check<Corrupt>(!document_.empty(), "{}: the document has no piece", question.where);

  out->answer_class = question.answer_class;
  out->answer_begin = out->answer_end = 0;
  if (question.answer_class != AnswerClass::unknown) {
    check<Corrupt>(question.answer_begin < question.answer_end &&
                       question.answer_end <= question.document.size(),
                   "{}: the answer is bytes {} to {}, and the document has {}", question.where,
                   question.answer_begin, question.answer_end, question.document.size());
    out->answer_begin = piece_beyond(document_, question.answer_begin);
    out->answer_end = piece_at(document_, question.answer_end);
    check<Corrupt>(out->answer_begin < out->answer_end,
                   "{}: no piece of the document is in the answer", question.where);
  }
  const auto ids_of = [](const std::vector<TextPiece>& pieces, std::vector<int32_t>* ids) {
    ids->resize(pieces.size());
    std::transform(pieces.begin(), pieces.end(), ids->begin(),
                   [](const TextPiece& piece) { return piece.id; });
  };
  ids_of(question_, &out->question);
  ids_of(document_, &out->document);
  out->sentences.clear();
  if (!with_sentences) return;
  for (const uint32_t byte : sentence_begins(question.document)) {
    const uint32_t piece = piece_at(document_, byte);
    if (piece < document_.size() && (out->sentences.empty() || out->sentences.back() < piece))
      out->sentences.push_back(piece);
  }
}

bool QuestionChunker::surely_cuttable(const Question& question) {
  const std::string_view text = question.document;
  const auto ends_word = [&](size_t at) { return at == text.size() || text[at] == ' '; };
  size_t begin = 0, end = text.size();
  if (question.answer_class != AnswerClass::unknown) {
    begin = question.answer_begin;
    end = question.answer_end;
    if (begin >= end || end > text.size()) return false;
    // A tag is a whole word, and part of a word does not tell whether it is one.
    if (options_.drop_tags && ((begin > 0 && text[begin - 1] != ' ') || !ends_word(end)))
      return false;
  } else {
    constexpr size_t kLook = 256;
    const auto inside = [&](size_t at) {  // a word with tags, else a character
      return options_.drop_tags ? !ends_word(at) : at < text.size() && (text[at] & 0xC0) == 0x80;
    };
    for (end = std::min(end, kLook); end > 0 && inside(end);) --end;
  }
  question_.clear();
  tokenizer_.encode(question.question, &question_);
  encode_document(text.substr(begin, end - begin));
  return !question_.empty() && !document_.empty();
}

void QuestionChunker::check_cuttable(const Question& question) {
  try {
    if (surely_cuttable(question)) return;
  } catch (const Corrupt&) {  // cut() says where
  }
  cut(question);
}

size_t CutQuestion::bytes() const {
  return sizeof(CutQuestion) + id.capacity() +
         sizeof(int32_t) * (question.capacity() + document.capacity()) +
         sizeof(DocumentChunk) * chunks.capacity();
}

size_t CutQuestion::choose(const ChunkOptions& options, uint64_t seed, int64_t epoch,
                           int64_t sample) const {
  check<UsageError>(!chunks.empty(), "there is no chunk to choose: cut() comes first");
  const auto weight = [&](const DocumentChunk& chunk) {
    return options.weights[static_cast<size_t>(chunk.answer_class)];
  };
  double sum = 0;
  for (const DocumentChunk& chunk : chunks) sum += weight(chunk);
  const PhiloxBlock random =
      philox_block(stable_hash({stable_hash("chunk"), seed}), static_cast<uint64_t>(epoch),
                   static_cast<uint64_t>(sample));
  const double drawn = uniform01_double(random[0], random[1]);
  // Where all of these have no weight, none is better than another.
  if (sum == 0) return static_cast<size_t>(drawn * static_cast<double>(chunks.size()));
  double left = drawn * sum;
  size_t last = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (weight(chunks[i]) == 0) continue;
    last = i;
    if ((left -= weight(chunks[i])) < 0) return i;
  }
  return last;
}

void CutQuestion::sample(size_t index, const ChunkOptions& options, const Vocabulary& vocabulary,
                         QuestionSample* out) const {
  check<UsageError>(index < chunks.size(), "there is no chunk {}: there are {}", index,
                    chunks.size());
  const DocumentChunk& chunk = chunks[index];
  out->id = id;
  out->question_pieces = static_cast<int32_t>(question.size());
  std::vector<int32_t>& ids = out->input_ids;
  ids.resize(question.size() + chunk.end - chunk.begin + kSpecialPieces);
  auto to = ids.begin();
  *to++ = vocabulary.first();
  to = std::copy(question.begin(), question.end(), to);
  *to++ = vocabulary.separator();
  to = std::copy(document.begin() + chunk.begin, document.begin() + chunk.end, to);
  *to++ = vocabulary.separator();
  out->start_id = chunk.start_id;
  out->end_id = chunk.end_id;
  const auto position = [&](int32_t at) {
    return at < 0 ? -1.0f : static_cast<float>(at) / static_cast<float>(options.max_length);
  };
  out->start_position = position(chunk.start_id);
  out->end_position = position(chunk.end_id);
  out->answer_class = chunk.answer_class;
}

QuestionBatch collate(std::span<const QuestionSample> samples, int32_t padding) {
  check<UsageError>(!samples.empty(), "a batch of no samples");
  QuestionBatch batch;
  batch.rows = static_cast<int64_t>(samples.size());
  for (const QuestionSample& sample : samples)
    batch.length = std::max(batch.length, static_cast<int64_t>(sample.input_ids.size()));
  const auto length = static_cast<size_t>(batch.length);
  batch.input_ids.assign(samples.size() * length, padding);
  batch.token_types.assign(samples.size() * length, 0);
  batch.attention_mask.assign(samples.size() * length, 0);
  for (size_t row = 0; row < samples.size(); ++row) {
    const QuestionSample& sample = samples[row];
    const auto first = static_cast<std::ptrdiff_t>(row * length);
    const auto size = static_cast<std::ptrdiff_t>(sample.input_ids.size());
    std::copy(sample.input_ids.begin(), sample.input_ids.end(), batch.input_ids.begin() + first);
    std::fill_n(batch.attention_mask.begin() + first, size, 1);
    const auto chunk = std::min<std::ptrdiff_t>(size, sample.question_pieces + 2);
    std::fill_n(batch.token_types.begin() + first + chunk, size - chunk, 1);
    batch.start_ids.push_back(sample.start_id);
    batch.end_ids.push_back(sample.end_id);
    batch.classes.push_back(static_cast<int64_t>(sample.answer_class));
    batch.start_positions.push_back(sample.start_position);
    batch.end_positions.push_back(sample.end_position);
    batch.ids.push_back(sample.id);
  }
  return batch;
}

StratifiedSplit stratified_split(std::span<const AnswerClass> classes, double fraction,
                                 uint64_t seed) {
  check<UsageError>(fraction >= 0 && fraction < 1,
                    "the fraction that validates is {}: it must be from 0 to less than 1",
                    fraction);
  std::vector<bool> validates(classes.size());
  for (int c = 0; c < kAnswerClasses; ++c) {
    std::vector<std::pair<uint64_t, size_t>> of_class;
    for (size_t i = 0; i < classes.size(); ++i)
      if (static_cast<int>(classes[i]) == c)
        of_class.emplace_back(stable_hash({stable_hash("split"), seed, uint64_t{i}}), i);
    if (of_class.empty()) continue;
    std::sort(of_class.begin(), of_class.end());
    const auto wanted =
        static_cast<size_t>(std::ceil(fraction * static_cast<double>(of_class.size())));
    of_class.resize(std::min(wanted, of_class.size() - 1));
    for (const auto& [hash, i] : of_class) validates[i] = true;
  }
  StratifiedSplit split;
  for (size_t i = 0; i < classes.size(); ++i)
    (validates[i] ? split.validation : split.train).push_back(static_cast<int64_t>(i));
  return split;
}

}  // namespace trireme
