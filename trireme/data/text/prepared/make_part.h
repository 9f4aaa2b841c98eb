// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/data/text/prepared/part_origin.h"
#include "trireme/data/text/question_file.h"
#include "trireme/data/text/word_piece.h"

namespace trireme {

/// Cuts the questions of a part into pieces: the bytes of the part. Bad samples are left out and
/// counted. Holds the part and one question in memory.
std::string make_part_of_lines(const std::string& path, uint64_t begin, uint64_t end,
                               uint64_t longest_line, const PartOrigin& origin,
                               std::shared_ptr<const Vocabulary> vocabulary,
                               const WordPieceOptions& word_piece, bool drop_tags);
/// The same of a whole file of SQuAD, without those that cannot be cut.
std::string make_part_of_squad(const std::string& path, const PartOrigin& origin,
                               std::shared_ptr<const Vocabulary> vocabulary,
                               const WordPieceOptions& word_piece, bool drop_tags);

}  // namespace trireme
