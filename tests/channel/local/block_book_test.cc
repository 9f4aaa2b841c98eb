// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/block_book.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace trireme::channel::local {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

/// A book with the windows that it would have, and who has what.
struct Kept {
  explicit Kept(uint64_t most) : book(most), most(most) {}

  std::optional<Block> make(uint64_t bytes) {
    std::optional<Block> block = book.take(bytes);
    if (!block) {
      const auto growth = book.growth_for(bytes);
      if (!growth) return std::nullopt;
      for (const uint32_t window : growth->dropped) {
        EXPECT_TRUE(windows.count(window));
        for (const auto& [at, taken] : live) EXPECT_NE(taken.window, window) << "it is in use";
        windows.erase(window);
        book.drop(window);
      }
      windows[next] = growth->bytes;
      book.begin(*growth);
      book.add(next++, *growth);
      block = book.take(bytes);
      EXPECT_TRUE(block) << "after what growth_for() asked for, " << bytes << " bytes fit";
    }
    if (!block) return std::nullopt;
    EXPECT_GE(block->bytes, bytes);
    EXPECT_EQ(block->offset % 4096, 0u);
    EXPECT_TRUE(windows.count(block->window));
    EXPECT_LE(block->offset + block->bytes, windows[block->window]);
    for (const auto& [at, other] : live)
      EXPECT_TRUE(other.window != block->window || block->offset >= other.offset + other.bytes ||
                  other.offset >= block->offset + block->bytes)
          << "two have the same bytes";
    live[{block->window, block->offset}] = *block;
    uint64_t all = 0;
    for (const auto& [window, size] : windows) all += size;
    EXPECT_EQ(all, book.window_bytes());
    EXPECT_LE(all, most);
    return block;
  }
  void give(Block block) {
    live.erase({block.window, block.offset});
    book.give(block);
  }

  BlockBook book;
  uint64_t most;
  uint32_t next = 0;
  std::map<uint32_t, uint64_t> windows;
  std::map<std::pair<uint32_t, uint64_t>, Block> live;
};

TEST(channel_local_block_book, a_block_that_was_given_back_serves_the_next_of_its_size) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{16384}, uint64_t{100000}, kMiB, 64 * kMiB}) {
    Kept kept(1024 * kMiB);
    const Block first = *kept.make(bytes);
    for (int i = 0; i < 20; ++i) {
      kept.give(kept.live.begin()->second);
      const Block again = *kept.make(bytes);
      EXPECT_EQ(std::pair(again.window, again.offset), std::pair(first.window, first.offset));
    }
    EXPECT_EQ(kept.windows.size(), 1u) << bytes;
  }
}

TEST(channel_local_block_book, windows_of_another_size_make_room_and_those_in_use_do_not) {
  Kept kept(64 * kMiB);
  const Block held = *kept.make(20 * kMiB);
  const Block free = *kept.make(30 * kMiB);
  EXPECT_FALSE(kept.make(40 * kMiB));
  kept.give(free);
  EXPECT_TRUE(kept.make(40 * kMiB));
  EXPECT_EQ(kept.windows.count(free.window), 0u);
  EXPECT_EQ(kept.windows.count(held.window), 1u);
}

TEST(channel_local_block_book, sizes_beyond_the_bound_have_no_growth) {
  BlockBook book(8 * kMiB), none(0);
  EXPECT_TRUE(book.growth_for(8 * kMiB));
  EXPECT_FALSE(book.growth_for(8 * kMiB + 1));
  EXPECT_FALSE(book.growth_for(~uint64_t{0}));
  EXPECT_FALSE(none.growth_for(1));
  EXPECT_FALSE(none.growth_for(0));
}

TEST(channel_local_block_book, a_window_that_was_begun_counts_until_it_is_given_up) {
  BlockBook book(8 * kMiB);
  const auto growth = book.growth_for(6 * kMiB);
  book.begin(*growth);
  EXPECT_FALSE(book.growth_for(3 * kMiB));
  EXPECT_FALSE(book.take(3 * kMiB));
  book.give_up(*growth);
  EXPECT_TRUE(book.growth_for(3 * kMiB));
}

TEST(channel_local_block_book, random_blocks_never_overlap_and_keep_the_bound) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Kept kept((8 + random() % 100) * kMiB);
    int refused = 0;
    for (int i = 0; i < 400; ++i) {
      if (!kept.live.empty() && random() % 3 == 0) {
        auto it = kept.live.begin();
        std::advance(it, static_cast<long>(random() % kept.live.size()));
        kept.give(it->second);
      } else if (!kept.make(random() % (uint64_t{1} << (10 + random() % 15)))) {
        ++refused;
        for (int n = 0; n < 3 && !kept.live.empty(); ++n) kept.give(kept.live.begin()->second);
      }
    }
    EXPECT_LT(refused, 300);
  }
}

}  // namespace
}  // namespace trireme::channel::local
