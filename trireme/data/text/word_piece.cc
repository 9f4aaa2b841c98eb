// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/word_piece.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/data/text/unicode.h"
#include "trireme/data/text/utf8.h"
#include "trireme/data/text/word_cache.h"
#include "trireme/data/text/words.h"

namespace trireme {
namespace {

bool ends_word(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

struct WordPieceTokenizer::Impl {
  Impl(std::shared_ptr<const Vocabulary> of, const WordPieceOptions& options)
      : vocabulary(std::move(of)),
        max_word_chars(options.max_word_chars),
        lower_case(options.lower_case),
        splitter(options.lower_case, options.strip_accents.value_or(options.lower_case),
                 options.split_cjk) {}

  /// The pieces of what stands between two spaces, without the cache.
  void split(std::string_view text, uint32_t at, std::vector<TextPiece>* out) {
    if (std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; }))
      return split_ascii(text, at, out);
    splitter.split(
        text, at, [&](const WordChar* first, const WordChar* last) { add_word(first, last, out); });
  }

  /// The same for ASCII without control characters, where each character stays one byte.
  void split_ascii(std::string_view text, uint32_t at, std::vector<TextPiece>* out) {
    bytes = text;
    if (lower_case)
      for (char& c : bytes)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    const auto is_sign = [&](size_t i) {
      const uint8_t classes = unicode::classes_of(static_cast<unsigned char>(bytes[i]));
      return (classes & unicode::kPunctuation) != 0;
    };
    for (size_t begin = 0, end; begin < bytes.size(); begin = end) {
      end = begin + 1;
      if (!is_sign(begin))
        while (end < bytes.size() && !is_sign(end)) ++end;
      const std::string_view word(bytes.data() + begin, end - begin);
      const auto offset = at + static_cast<uint32_t>(begin);
      const auto size = static_cast<uint32_t>(word.size());
      const size_t before = out->size();
      uint32_t done = 0;
      while (done < size && word.size() <= static_cast<size_t>(max_word_chars)) {
        const auto match = vocabulary->longest(word.substr(done), done > 0);
        if (match.id < 0) break;
        const uint32_t next = done + static_cast<uint32_t>(match.bytes);
        out->push_back({match.id, offset + done, offset + next});
        done = next;
      }
      if (done == size) continue;
      out->resize(before);
      out->push_back({vocabulary->unknown(), offset, offset + size});
    }
  }

  void add_word(const WordChar* first, const WordChar* last, std::vector<TextPiece>* out) {
    // Marks may have changed places, so the first character's bytes need not be the first.
    const auto piece = [](int32_t id, const WordChar* from, const WordChar* to) {
      TextPiece made{id, from->begin, from->end};
      for (; from != to; ++from) {
        made.begin = std::min(made.begin, from->begin);
        made.end = std::max(made.end, from->end);
      }
      return made;
    };
    const size_t before = out->size();
    bytes.clear();
    begins.clear();
    if (last - first <= max_word_chars) {
      for (const WordChar* c = first; c != last; ++c) {
        begins.push_back(static_cast<uint32_t>(bytes.size()));
        append_utf8(c->code, &bytes);
      }
      begins.push_back(static_cast<uint32_t>(bytes.size()));
      const std::string_view word = bytes;
      size_t at = 0;
      for (const WordChar* c = first; c != last;) {
        const auto match = vocabulary->longest(word.substr(at), at > 0);
        if (match.id < 0) break;
        at += match.bytes;
        const WordChar* from = c;
        while (begins[static_cast<size_t>(c - first)] < at) ++c;
        out->push_back(piece(match.id, from, c));
      }
      if (at == word.size()) return;
      out->resize(before);
    }
    out->push_back(piece(vocabulary->unknown(), first, last));
  }

  std::shared_ptr<const Vocabulary> vocabulary;
  const int max_word_chars;
  const bool lower_case;
  WordSplitter splitter;
  WordCache cache;
  std::string bytes;             // of a word
  std::vector<uint32_t> begins;  // of its characters, and its end
};

WordPieceTokenizer::WordPieceTokenizer(std::shared_ptr<const Vocabulary> vocabulary,
                                       const WordPieceOptions& options)
    : impl_(nullptr) {
  check<UsageError>(vocabulary != nullptr, "a WordPiece tokenizer without a vocabulary");
  check<UsageError>(options.max_word_chars >= 1,
                    "WordPiece's max_word_chars is {}: it must be at least 1",
                    options.max_word_chars);
  impl_ = std::make_unique<Impl>(std::move(vocabulary), options);
}
WordPieceTokenizer::~WordPieceTokenizer() = default;
WordPieceTokenizer::WordPieceTokenizer(WordPieceTokenizer&&) noexcept = default;

const Vocabulary& WordPieceTokenizer::vocabulary() const { return *impl_->vocabulary; }

void WordPieceTokenizer::encode(std::string_view text, std::vector<TextPiece>* out) {
  check<UsageError>(text.size() <= std::numeric_limits<uint32_t>::max(),
                    "a text of {} bytes: pieces count them in 32 bits, so cut it", text.size());
  WordCache& cache = impl_->cache;
  const char *at = text.data(), *const end = at + text.size();
  for (;;) {
    while (at != end && ends_word(*at)) ++at;
    if (at == end) return;
    const char* const begin = at;
    uint64_t hash = WordCache::kHashSeed;
    while (at != end && !ends_word(*at)) hash = WordCache::hash(hash, *at++);
    const auto offset = static_cast<uint32_t>(begin - text.data());
    const std::string_view word(begin, static_cast<size_t>(at - begin));
    if (word.size() > WordCache::kLongestWord) {
      impl_->split(word, offset, out);
      continue;
    }
    if (const auto known = cache.find(word, hash)) {
      for (const TextPiece& piece : *known)
        out->push_back({piece.id, piece.begin + offset, piece.end + offset});
      continue;
    }
    const size_t before = out->size();
    impl_->split(word, offset, out);
    cache.add(word, hash, {out->data() + before, out->size() - before}, offset);
  }
}

std::vector<TextPiece> WordPieceTokenizer::encode(std::string_view text) {
  std::vector<TextPiece> out;
  encode(text, &out);
  return out;
}

}  // namespace trireme
