// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/mapped_file.h"

// Inside data: the files of a corpus, and which of them are held out. Corpus and documents are cut
// from the same.
namespace trireme {

struct CorpusText {
  std::vector<MappedFile> files;
  std::vector<std::string> names;
  int64_t left_out = 0;
  std::string where;  // for messages

  int64_t length(size_t i) const { return static_cast<int64_t>(files[i].bytes().size()) + 1; }
};

/// Text files in the order of their names; binary and empty ones of folders are left out. Throws
/// as open_corpus().
std::shared_ptr<CorpusText> open_corpus_text(const std::vector<std::string>& paths,
                                             const std::vector<std::string>& extensions);

/// A hash of what the files hold. Of files up to 1 MiB it reads every byte, as long as these have
/// no more than 1 GiB together; else the first and the last 4 KiB of each. Of larger ones it reads
/// 64 KiB at 16 places: the first, the last and 14 evenly between them.
uint64_t hash_of_contents(const CorpusText& text);

/// Files to hold out, by the hash of their names, about `wanted` bytes; none where that cannot be
/// done well.
std::vector<bool> pick_held_out(const CorpusText& text, int64_t wanted, int64_t total,
                                int64_t window);

}  // namespace trireme
