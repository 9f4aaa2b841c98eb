// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/philox.h"
#include "trireme/data/text/word_piece.h"

namespace trireme {

/// The pieces of words that occurred before: few words are most of a text. When it is full it
/// forgets all of them, which costs less than knowing which to keep.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 64;  // bytes; longer ones seldom come again
  static constexpr uint64_t kHashSeed = 0xCBF29CE484222325u;
  static uint64_t hash(uint64_t so_far, char next) {
    return (so_far ^ static_cast<uint8_t>(next)) * 0x100000001B3u;
  }

  /// Valid until the next add(). Offsets count from the word's first byte.
  std::optional<std::span<const TextPiece>> find(std::string_view word, uint64_t hash) const {
    if (rows_.empty()) return std::nullopt;
    for (uint64_t at = mix64(hash) % kRows; rows_[at].length != 0; at = (at + 1) % kRows) {
      const Row& row = rows_[at];
      if (row.hash == hash && row.length == word.size() &&
          std::memcmp(bytes_.data() + row.word, word.data(), word.size()) == 0)
        return std::span(pieces_).subspan(row.first_piece, row.pieces);
    }
    return std::nullopt;
  }

  /// What find() did not find.
  void add(std::string_view word, uint64_t hash, std::span<const TextPiece> pieces,
           uint32_t offset) {
    if (rows_.empty() || words_ > kRows / 2) {
      rows_.assign(kRows, Row{});
      bytes_.clear();
      pieces_.clear();
      words_ = 0;
    }
    uint64_t at = mix64(hash) % kRows;
    while (rows_[at].length != 0) at = (at + 1) % kRows;
    rows_[at] = {hash, static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(pieces_.size()),
                 static_cast<uint16_t>(word.size()), static_cast<uint16_t>(pieces.size())};
    ++words_;
    bytes_.append(word);
    for (const TextPiece& piece : pieces)
      pieces_.push_back({piece.id, piece.begin - offset, piece.end - offset});
  }

 private:
  static constexpr size_t kRows = size_t{1} << 17;
  struct Row {
    uint64_t hash = 0;
    uint32_t word = 0, first_piece = 0;
    uint16_t length = 0, pieces = 0;  // length 0: empty
  };
  std::vector<Row> rows_;
  std::string bytes_;
  std::vector<TextPiece> pieces_;
  size_t words_ = 0;
};

}  // namespace trireme
