// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/text/vocabulary.h"

namespace trireme {

struct WordPieceOptions {
  bool lower_case = true;                            // as "uncased" models were trained
  std::optional<bool> strip_accents = std::nullopt;  // unset: as lower_case
  bool split_cjk = true;                             // each ideograph is a word
  int max_word_chars = 100;                          // longer words are unknown
};

/// A piece and the bytes [begin, end) of the text that it stands for. What BERT leaves out (control
/// characters, accents that are characters of their own) may be part of them.
struct TextPiece {
  int32_t id;
  uint32_t begin, end;
  bool operator==(const TextPiece&) const = default;
};

/// BERT's tokenizer: basic tokenization, then the longest pieces first. Gives what the
/// BertTokenizer of Hugging Face's transformers gives (3.x and 4.x with split_special_tokens:
/// "[SEP]" in a text is text, so that no text can end a sequence), with characters as Unicode 14
/// has them.
///
/// Remembers the words that it has seen, in a few MiB; so one thread at a time, and each thread its
/// own. The vocabulary is shared.
class TRIREME_API WordPieceTokenizer {
 public:
  explicit WordPieceTokenizer(std::shared_ptr<const Vocabulary> vocabulary,
                              const WordPieceOptions& options = {});
  ~WordPieceTokenizer();
  WordPieceTokenizer(WordPieceTokenizer&&) noexcept;

  /// Adds the pieces of `text`. Throws Corrupt, with the byte, for what is not UTF-8, and
  /// UsageError for texts of 4 GiB and more; `out` then holds some of them.
  void encode(std::string_view text, std::vector<TextPiece>* out);
  std::vector<TextPiece> encode(std::string_view text);

  const Vocabulary& vocabulary() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
