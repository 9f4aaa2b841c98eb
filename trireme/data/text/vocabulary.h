// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

/// What WordPiece vocabularies call the pieces that are no text.
struct SpecialPieces {
  std::string padding = "[PAD]", unknown = "[UNK]", first = "[CLS]", separator = "[SEP]";
};

/// The pieces of WordPiece, one a line of vocab.txt, numbered from 0. "##" begins those that
/// continue a word.
///
/// Immutable: threads may share it. Throws UsageError for a missing file or a special piece that is
/// not in it, Corrupt (with file and line) for an empty line, a piece that occurs twice or is
/// longer than 1,000 bytes, and bytes that are not UTF-8.
class TRIREME_API Vocabulary {
 public:
  static Vocabulary from_file(const std::string& path, const SpecialPieces& special = {});
  /// `where` begins messages, as a path would.
  static Vocabulary from_text(std::string_view text, const std::string& where,
                              const SpecialPieces& special = {});

  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  std::optional<int32_t> id_of(std::string_view piece) const;
  const std::string& piece(int32_t id) const;  // UsageError where there is none
  int32_t padding() const { return padding_; }
  int32_t unknown() const { return unknown_; }
  int32_t first() const { return first_; }
  int32_t separator() const { return separator_; }
  /// UsageError unless a table of this many rows has one for each piece.
  void check_fits(int64_t rows, const std::string& whose) const;

  /// The longest piece that `text` begins with, as the first of a word or as one that continues it.
  struct Match {
    int32_t id = -1;  // none
    size_t bytes = 0;
  };
  Match longest(std::string_view text, bool continues) const;

 private:
  Vocabulary() = default;
  void add(std::string_view piece, const std::string& line);
  uint32_t child(uint32_t node, unsigned char byte) const;
  void grow();

  std::string where_;
  std::vector<std::string> pieces_;
  int32_t padding_ = 0, unknown_ = 0, first_ = 0, separator_ = 0;
  // A trie of bytes. Node 0 is its root; edges are in one table of open addressing.
  struct Edge {
    uint32_t from = 0;  // node << 8 | byte, plus 1; 0: empty
    uint32_t to = 0;
  };
  std::vector<Edge> edges_;
  std::vector<int32_t> id_at_;  // of the piece that ends in a node, or -1
  uint32_t continuing_ = 0;     // the node of "##", or 0
};

}  // namespace trireme
