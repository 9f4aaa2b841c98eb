// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/prepared/prepared_part.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/data/text/bad_samples.h"

namespace trireme {
namespace {

/// The first bytes of a part.
struct PartHead {
  char magic[8];
  uint32_t version;
  uint32_t piece_bytes;  // 2 or 4
  uint64_t index_at, index_bytes, index_sum;
  uint64_t source_bytes;
  int64_t source_changed_ns;
  uint64_t source_samples;
  uint64_t rules;
  uint64_t begin, end;  // of the file of questions
  uint64_t sum;         // of the bytes before
};
constexpr char kPartMagic[8] = {'T', 'R', 'p', 'i', 'e', 'c', 'e', 's'};
constexpr size_t kHeadBytes = sizeof(PartHead), kHeadSummed = offsetof(PartHead, sum);
static_assert(kHeadBytes == 96 && std::is_trivially_copyable_v<PartHead>);

uint64_t sum_of(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

template <class Id>
struct StoredQuestion {
  std::string id;
  AnswerClass answer_class = AnswerClass::unknown;
  uint32_t answer_begin = 0, answer_end = 0;
  std::vector<Id> question, document;
  std::vector<uint32_t> sentences;
  TRIREME_FIELDS(id, answer_class, answer_begin, answer_end, question, document, sentences)
};

template <class Id>
std::string encode_as(const QuestionPieces& q) {
  const auto stored = [](const std::vector<int32_t>& ids) {
    std::vector<Id> out(ids.size());
    std::transform(ids.begin(), ids.end(), out.begin(),
                   [](int32_t id) { return static_cast<Id>(id); });
    return out;
  };
  return encode(StoredQuestion<Id>{q.id, q.answer_class, q.answer_begin, q.answer_end,
                                   stored(q.question), stored(q.document), q.sentences});
}

template <class Id>
void decode_as(std::string_view bytes, int64_t vocabulary, QuestionPieces* out) {
  auto q = decode<StoredQuestion<Id>>(bytes);
  const auto pieces = [&](const std::vector<Id>& ids, std::vector<int32_t>* to) {
    uint64_t largest = 0;
    to->resize(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
      largest = std::max<uint64_t>(largest, ids[i]);
      (*to)[i] = static_cast<int32_t>(ids[i]);
    }
    check<Corrupt>(!ids.empty() && largest < static_cast<uint64_t>(vocabulary),
                   "a piece is none of the vocabulary's {}, or there is no piece", vocabulary);
  };
  pieces(q.question, &out->question);
  pieces(q.document, &out->document);
  check<Corrupt>(q.document.size() < std::numeric_limits<uint32_t>::max(),
                 "a document is too long");
  const auto size = static_cast<uint32_t>(q.document.size());
  const bool answered = q.answer_class != AnswerClass::unknown;
  check<Corrupt>(q.answer_class >= AnswerClass::yes && q.answer_class <= AnswerClass::unknown &&
                     (answered ? q.answer_begin < q.answer_end && q.answer_end <= size
                               : q.answer_begin == 0 && q.answer_end == 0),
                 "an answer is not in its document");
  for (size_t i = 0; i < q.sentences.size(); ++i)
    check<Corrupt>(q.sentences[i] < size && (i == 0 || q.sentences[i - 1] < q.sentences[i]),
                   "sentences are not in order");
  out->id = std::move(q.id);
  out->answer_class = q.answer_class;
  out->answer_begin = q.answer_begin;
  out->answer_end = q.answer_end;
  out->sentences = std::move(q.sentences);
}

}  // namespace

namespace detail {

std::string encode_record(const QuestionPieces& question, bool wide) {
  return wide ? encode_as<uint32_t>(question) : encode_as<uint16_t>(question);
}

void decode_record(std::string_view bytes, bool wide, int64_t vocabulary, QuestionPieces* out) {
  wide ? decode_as<uint32_t>(bytes, vocabulary, out) : decode_as<uint16_t>(bytes, vocabulary, out);
}

void check_index(const PartIndex& index, uint64_t first, uint64_t end) {
  const size_t count = index.classes.size(), lines = index.of_lines ? count : 0;
  check<Corrupt>(index.ends.size() == count && index.sums.size() == count &&
                     index.begins.size() == lines && index.lengths.size() == lines &&
                     index.numbers.size() == lines,
                 "its lists are not equally long");
  uint64_t at = first;
  for (const uint64_t next : index.ends) {
    check<Corrupt>(at < next && next <= end, "a record is not where it could be");
    at = next;
  }
  check<Corrupt>(at == end, "there are bytes that are no record");
  for (const AnswerClass c : index.classes)
    check<Corrupt>(c >= AnswerClass::yes && c <= AnswerClass::unknown, "there is no such class");
  int64_t line = 0;
  for (const int64_t number : index.numbers) {
    check<Corrupt>(line < number && number <= index.lines, "lines are not in order");
    line = number;
  }
  check<Corrupt>(index.lines >= 0 && index.left_out >= 0 &&
                     index.first_left_out.size() <= BadSamples::kShown &&
                     index.first_left_out.size() <= static_cast<uint64_t>(index.left_out),
                 "its counts cannot be");
}

}  // namespace detail

PartWriter::PartWriter(const PartOrigin& origin, int64_t vocabulary, bool of_lines)
    : origin_(origin),
      wide_(vocabulary > int64_t{std::numeric_limits<uint16_t>::max()} + 1),
      bytes_(kHeadBytes, '\0') {
  index_.of_lines = of_lines;
}

void PartWriter::add(const QuestionPieces& question, uint64_t begin, uint64_t length,
                     int64_t number) {
  const std::string record = detail::encode_record(question, wide_);
  bytes_ += record;
  index_.classes.push_back(question.answer_class);
  index_.ends.push_back(bytes_.size());
  index_.sums.push_back(sum_of(record));
  if (!index_.of_lines) return;
  index_.begins.push_back(begin);
  index_.lengths.push_back(length);
  index_.numbers.push_back(number);
}

std::string PartWriter::finish(int64_t lines, int64_t left_out,
                               std::vector<PartIndex::Bad> first_left_out) {
  index_.lines = lines;
  index_.left_out = left_out;
  index_.first_left_out = std::move(first_left_out);
  const std::string index = encode(index_);
  PartHead head{};
  std::memcpy(head.magic, kPartMagic, sizeof head.magic);
  head.version = kPartVersion;
  head.piece_bytes = wide_ ? 4 : 2;
  head.index_at = bytes_.size();
  head.index_bytes = index.size();
  head.index_sum = sum_of(index);
  head.source_bytes = origin_.source.bytes;
  head.source_changed_ns = origin_.source.changed_ns;
  head.source_samples = origin_.source.samples;
  head.rules = origin_.rules;
  head.begin = origin_.begin;
  head.end = origin_.end;
  head.sum = XXH3_64bits(&head, kHeadSummed);
  std::memcpy(bytes_.data(), &head, sizeof head);
  bytes_ += index;
  return std::move(bytes_);
}

PreparedPart::PreparedPart(std::string_view bytes, const std::string& where)
    : bytes_(bytes), where_(where) {
  PartHead head;
  check<Corrupt>(bytes.size() >= kHeadBytes, "{}: {} bytes are no part of prepared questions",
                 where, bytes.size());
  std::memcpy(&head, bytes.data(), sizeof head);
  check<Corrupt>(std::memcmp(head.magic, kPartMagic, sizeof head.magic) == 0,
                 "{}: no part of prepared questions", where);
  // What the head of another version means is not known.
  check<Mismatch>(head.version == kPartVersion,
                  "{}: prepared questions of version {}, and this program has version {}", where,
                  head.version, kPartVersion);
  check<Corrupt>(head.sum == XXH3_64bits(&head, kHeadSummed) &&
                     (head.piece_bytes == 2 || head.piece_bytes == 4) && head.begin <= head.end &&
                     head.end <= head.source_bytes,
                 "{}: its head is damaged", where);
  check<Corrupt>(head.index_at >= kHeadBytes && head.index_at <= bytes.size() &&
                     head.index_bytes == bytes.size() - head.index_at,
                 "{}: {} bytes, and its head says {} and {}", where, bytes.size(), head.index_at,
                 head.index_bytes);
  const std::string_view index = bytes.substr(head.index_at);
  check<Corrupt>(head.index_sum == sum_of(index), "{}: its index is damaged", where);
  try {
    index_ = decode<PartIndex>(index);
    detail::check_index(index_, kHeadBytes, head.index_at);
  } catch (const Error& error) {
    fail<Corrupt>("{}: its index is damaged: {}", where, error.what());
  }
  wide_ = head.piece_bytes == 4;
  origin_ = {{head.source_bytes, head.source_changed_ns, head.source_samples},
             head.rules,
             head.begin,
             head.end};
}

void PreparedPart::read(int64_t number, int64_t vocabulary, QuestionPieces* out) const {
  check<UsageError>(number >= 0 && number < size(), "{}: there is no question {}: there are {}",
                    where_, number, size());
  const auto i = static_cast<size_t>(number);
  const uint64_t begin = i == 0 ? kHeadBytes : index_.ends[i - 1];
  const std::string_view record = bytes_.substr(begin, index_.ends[i] - begin);
  check<Corrupt>(sum_of(record) == index_.sums[i], "{}: question {} of it is damaged", where_,
                 number);
  try {
    detail::decode_record(record, wide_, vocabulary, out);
  } catch (const Error& error) {
    fail<Corrupt>("{}: question {} of it is damaged: {}", where_, number, error.what());
  }
  check<Corrupt>(out->answer_class == index_.classes[i],
                 "{}: question {} of it has another class than its index says", where_, number);
}

}  // namespace trireme
