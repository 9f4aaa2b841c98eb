// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"
#include "trireme/data/text/vocabulary.h"
#include "trireme/data/text/word_piece.h"

namespace trireme {

/// What tells a file of questions from what it was: its size, the time of its last change, and a
/// hash of 64 samples of 4 KiB, from its beginning to its end. Reading all of it would cost what
/// preparing saves; the time alone would miss what is copied with its times, and the samples alone
/// an answer that is mended in place.
struct SourceStamp {
  uint64_t bytes = 0;
  int64_t changed_ns = 0;
  uint64_t samples = 0;
  bool operator==(const SourceStamp&) const = default;
};
/// Throws as MappedFile.
TRIREME_API SourceStamp stamp_of(const std::string& path);

/// What the pieces of a part were made of. Other origins have other pieces.
struct PartOrigin {
  SourceStamp source;
  uint64_t rules = 0;           // rules_of()
  uint64_t begin = 0, end = 0;  // bytes of the file: the lines that begin there
  bool operator==(const PartOrigin&) const = default;
};

/// A number for everything but the file that pieces depend on: the vocabulary, how WordPiece is
/// asked, whether tags are dropped, which lines are too long, and the number of this program's own
/// rules, which changes where the same text would get other pieces.
TRIREME_API uint64_t rules_of(const Vocabulary& vocabulary, const WordPieceOptions& word_piece,
                              bool drop_tags, uint64_t longest_line);

/// "": it is what is `wanted`. Else why not, for "…: it is made anew": the file has changed, or the
/// vocabulary and options have.
TRIREME_API std::string other_origin(const PartOrigin& found, const PartOrigin& wanted);

}  // namespace trireme
