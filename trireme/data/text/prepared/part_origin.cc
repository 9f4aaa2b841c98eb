// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/prepared/part_origin.h"

#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/mapped_file.h"
#include "trireme/base/philox.h"

namespace trireme {

SourceStamp stamp_of(const std::string& path) {
  constexpr uint64_t kSamples = 64, kBytes = 4096;
  const MappedFile file(path);
  struct stat info {};
  if (file_calls::stat(path, &info) != 0)
    fail<ResourceError>("cannot stat file '{}': {}", path, errno_text());
  SourceStamp stamp{file.bytes().size(),
                    int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec, 0};
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  const uint64_t size = std::min(kBytes, stamp.bytes), last = stamp.bytes - size;
  for (uint64_t i = 0; i < kSamples; ++i) {
    const auto at =
        static_cast<uint64_t>(static_cast<unsigned __int128>(last) * i / (kSamples - 1));
    XXH3_64bits_update(&state, file.bytes().data() + at, size);
  }
  stamp.samples = XXH3_64bits_digest(&state);
  return stamp;
}

uint64_t rules_of(const Vocabulary& vocabulary, const WordPieceOptions& word_piece, bool drop_tags,
                  uint64_t longest_line) {
  constexpr uint64_t kRules = 1;
  uint64_t hash = stable_hash({stable_hash("prepared pieces"), kRules, longest_line});
  const auto add = [&](uint64_t value) { hash = stable_hash({hash, value}); };
  for (const int value : {int{word_piece.lower_case}, int{word_piece.split_cjk},
                          int{word_piece.strip_accents.value_or(word_piece.lower_case)},
                          word_piece.max_word_chars, int{drop_tags}, int{vocabulary.unknown()}})
    add(static_cast<uint64_t>(value));
  for (int32_t id = 0; id < vocabulary.size(); ++id) add(stable_hash(vocabulary.piece(id)));
  return hash;
}

std::string other_origin(const PartOrigin& found, const PartOrigin& wanted) {
  if (found.source != wanted.source) return "the file of questions has changed";
  if (found.rules != wanted.rules)
    return "it is of another vocabulary, of other options of WordPiece, or of another program";
  if (found != wanted) return "it is another part";
  return "";
}

}  // namespace trireme
