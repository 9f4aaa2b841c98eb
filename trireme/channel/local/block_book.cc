// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/block_book.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace trireme::channel::local {
namespace {

constexpr uint64_t kPageBytes = 4096;

uint64_t up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

}  // namespace

/// Small blocks come in four sizes for each power of two, so that they fit each other's places.
uint64_t BlockBook::rounded(uint64_t bytes) {
  bytes = up(std::max(bytes, kPageBytes), kPageBytes);
  if (bytes >= kOwnWindow) return bytes;
  return up(bytes, std::max(kPageBytes, std::bit_floor(bytes) / 4));
}

bool BlockBook::serves(const Block& block, uint64_t size) {
  return block.bytes >= size && block.bytes <= size + size / 4 &&
         (block.bytes >= kOwnWindow) == (size >= kOwnWindow);
}

std::optional<Block> BlockBook::take(uint64_t bytes) {
  const uint64_t size = rounded(bytes);
  if (last_ && serves(*last_, size)) return std::exchange(last_, std::nullopt);
  const auto found = free_.lower_bound(size);
  if (found != free_.end() && serves(found->second, size)) {
    const Block block = found->second;
    free_.erase(found);
    return block;
  }
  if (size >= kOwnWindow || size > rest_.bytes) return std::nullopt;
  const Block block{rest_.window, rest_.offset, size};
  rest_.offset += size, rest_.bytes -= size;
  return block;
}

void BlockBook::give(const Block& block) {
  if (last_) free_.emplace(last_->bytes, *last_);
  last_ = block;
}

std::optional<BlockBook::Growth> BlockBook::growth_for(uint64_t bytes) {
  if (last_) free_.emplace(last_->bytes, *last_);
  last_.reset();
  if (bytes > most_) return std::nullopt;  // and rounding it overflows nothing
  const uint64_t size = rounded(bytes);
  Growth growth;
  growth.shared = size < kOwnWindow;
  growth.bytes = growth.shared ? kSharedWindow : size;
  if (growth.bytes > most_) return std::nullopt;
  uint64_t after = total_ + growth.bytes;
  for (auto it = free_.rbegin(); after > most_ && it != free_.rend() && it->first >= kOwnWindow;
       ++it) {
    growth.dropped.push_back(it->second.window);
    after -= it->first;
  }
  if (after > most_) return std::nullopt;
  return growth;
}

void BlockBook::drop(uint32_t window) {  // growth_for() has just named it: it is not last_
  for (auto it = free_.lower_bound(kOwnWindow); it != free_.end(); ++it)
    if (it->second.window == window) {
      total_ -= it->first;
      free_.erase(it);
      return;
    }
}

void BlockBook::add(uint32_t window, const Growth& growth) {
  const Block whole{window, 0, growth.bytes};
  if (!growth.shared) {
    free_.emplace(whole.bytes, whole);
    return;
  }
  if (rest_.bytes > 0) free_.emplace(rest_.bytes, rest_);
  rest_ = whole;
}

}  // namespace trireme::channel::local
