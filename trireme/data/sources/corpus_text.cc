// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/corpus_text.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/data/sources/file_list.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trireme {

std::shared_ptr<CorpusText> open_corpus_text(const std::vector<std::string>& paths,
                                             const std::vector<std::string>& extensions) {
  auto text = std::make_shared<CorpusText>();
  text->where = paths.size() == 1
                    ? fmt::format("'{}'", paths[0])
                    : fmt::format("'{}' and {} more paths", paths[0], paths.size() - 1);
  for (auto& listed : list_files(paths, extensions)) {
    MappedFile file(listed.path);
    const auto bytes = file.bytes();
    const bool binary =
        !bytes.empty() && std::memchr(bytes.data(), 0, std::min<size_t>(bytes.size(), 4096));
    if (bytes.empty() || (binary && !listed.outright)) {
      ++text->left_out;
      continue;
    }
    text->files.push_back(std::move(file));
    text->names.push_back(std::move(listed.name));
  }
  check<UsageError>(
      !text->files.empty(),
      "the corpus {} is empty ({} files left out as binary or empty): give files with text",
      text->where, text->left_out);
  return text;
}

uint64_t hash_of_contents(const CorpusText& text) {
  constexpr size_t kSmall = size_t{1} << 20, kAllSmall = size_t{1} << 30;
  constexpr size_t kEnd = size_t{4} << 10, kSample = size_t{64} << 10, kSamples = 16;
  size_t small = 0;
  for (const MappedFile& file : text.files)
    if (const size_t size = file.bytes().size(); size <= kSmall) small += size;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const MappedFile& file : text.files) {
    const auto bytes = file.bytes();
    const auto add = [&](size_t at, size_t n) { XXH3_64bits_update(&state, bytes.data() + at, n); };
    if (bytes.size() > kSmall) {
      for (size_t i = 0; i + 1 < kSamples; ++i)
        add((bytes.size() - kSample) / (kSamples - 1) * i, kSample);
      add(bytes.size() - kSample, kSample);
    } else if (small <= kAllSmall || bytes.size() <= 2 * kEnd) {
      add(0, bytes.size());
    } else {
      add(0, kEnd);
      add(bytes.size() - kEnd, kEnd);
    }
  }
  return XXH3_64bits_digest(&state);
}

// Files to hold out, by the hash of their names, about `wanted` bytes; none where that cannot be
// done well.
std::vector<bool> pick_held_out(const CorpusText& text, int64_t wanted, int64_t total,
                                int64_t window) {
  std::vector<size_t> order(text.files.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return stable_hash(text.names[a]) < stable_hash(text.names[b]);
  });
  std::vector<bool> held(text.files.size(), false);
  int64_t sum = 0;
  for (size_t i : order) {
    if (sum >= wanted) break;
    const auto length = text.length(i);
    if (sum + length > wanted + wanted / 2 || total - sum - length < window) continue;
    held[i] = true;
    sum += length;
  }
  if (sum < window || sum < wanted / 2) held.assign(held.size(), false);
  return held;
}

}  // namespace trireme
