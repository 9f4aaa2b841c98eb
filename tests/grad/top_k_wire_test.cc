// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/top_k_wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "trireme/base/philox.h"

namespace top_k_wire_test {

using namespace trireme;
using top_k::Layout;
using top_k::Reader;
using top_k::Writer;

namespace {

/// k of n, ascending; which, goes by `seed`.
std::vector<int64_t> some(int64_t n, int64_t k, uint64_t seed) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t i = 0; i < k; ++i) {
    const auto other =
        below(mix64(seed * 7919 + static_cast<uint64_t>(i)), static_cast<uint64_t>(n - i));
    std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(i) + other]);
  }
  all.resize(static_cast<size_t>(k));
  std::sort(all.begin(), all.end());
  return all;
}

struct Message {
  Message(int64_t n, const std::vector<int64_t>& places)
      : layout(n, static_cast<int64_t>(places.size())),
        words(static_cast<size_t>(layout.bytes / 8 + 1)) {
    Writer writer(layout, bytes());
    for (int64_t p : places) writer.add(p);
    for (size_t i = 0; i < places.size(); ++i) writer.values()[i] = static_cast<uint16_t>(i);
  }
  char* bytes() { return reinterpret_cast<char*>(words.data()); }
  Reader reader() { return {layout, bytes()}; }

  Layout layout;
  std::vector<uint64_t> words;
};

std::vector<int64_t> read(Message& message, int64_t piece) {
  std::vector<int64_t> found;
  Reader reader = message.reader();
  for (int64_t begin = 0; begin < message.layout.n; begin += piece) {
    const int64_t end = std::min(message.layout.n, begin + piece);
    reader.until(end, [&](int64_t place, int64_t value) {
      EXPECT_GE(place, begin);
      EXPECT_LT(place, end);
      EXPECT_EQ(value, static_cast<int64_t>(found.size()));
      found.push_back(place);
    });
  }
  return found;
}

}  // namespace

TEST(grad_top_k_wire, what_is_written_is_read_in_pieces_of_any_size) {
  bool bits = false, blocks = false;
  for (int64_t n : {1, 7, 63, 64, 65, 200, 65535, 65536, 65537, 140000})
    for (int64_t k : {int64_t{0}, int64_t{1}, n / 100, n / 10, n / 2, n}) {
      if (k > n) continue;
      const auto places = some(n, k, static_cast<uint64_t>(n + k));
      Message message(n, places);
      (message.layout.bits ? bits : blocks) = true;
      ASSERT_TRUE(message.reader().valid()) << n << " " << k;
      for (int64_t piece : {n, int64_t{8192}, int64_t{100}, int64_t{1}})
        if (n / piece < 3000) {
          ASSERT_EQ(read(message, piece), places) << n << " " << k << " " << piece;
        }
    }
  EXPECT_TRUE(bits && blocks);
}

TEST(grad_top_k_wire, the_shorter_way_to_tell_places_is_taken) {
  const int64_t n = 1 << 20;
  for (int64_t k : {n / 1000, n / 100, n / 20, n / 10, n / 4, n}) {
    const Layout layout(n, k);
    EXPECT_LE(layout.bytes, std::min(n / 8, 2 * k + 4 * 16) + 2 * k + 32) << k;
    EXPECT_EQ(layout.bits, k > n / 16) << k;
    EXPECT_EQ(layout.bytes % 16, 0);
  }
}

// Memory of a peer: whatever is in it, either it is refused or reading stays within the bucket.
TEST(grad_top_k_wire, what_a_peer_broke_is_refused_or_harmless) {
  int refused = 0;
  for (int64_t n : {200, 70000})
    for (int64_t k : {n / 50, n / 2})
      for (uint64_t seed = 0; seed < 300; ++seed) {
        Message message(n, some(n, k, seed));
        const uint64_t at = below(mix64(seed), static_cast<uint64_t>(message.layout.places) * 8);
        message.bytes()[at / 8] = static_cast<char>(message.bytes()[at / 8] ^ (1 << (at % 8)));
        if (!message.reader().valid()) {
          ++refused;
          continue;
        }
        EXPECT_EQ(static_cast<int64_t>(read(message, n).size()), k);
      }
  EXPECT_GT(refused, 600);
}

TEST(grad_top_k_wire, counts_places_and_bits_that_cannot_be_are_refused) {
  Message blocks(70000, some(70000, 100, 1));
  ASSERT_FALSE(blocks.layout.bits);
  auto* count = reinterpret_cast<int32_t*>(blocks.bytes());
  const int32_t first = count[0];
  for (int32_t wrong : {-1, 101, 1 << 30, first - 1}) {
    count[0] = wrong;
    EXPECT_FALSE(blocks.reader().valid()) << wrong;
  }
  Message bits(100, some(100, 50, 1));
  ASSERT_TRUE(bits.layout.bits);
  bits.words[1] ^= uint64_t{1} << 63;  // beyond the last element
  EXPECT_FALSE(bits.reader().valid());
}

}  // namespace top_k_wire_test
