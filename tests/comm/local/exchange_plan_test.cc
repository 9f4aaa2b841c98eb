// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/exchange_plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "trireme/base/philox.h"

namespace exchange_plan_test {

using namespace trireme;
using namespace trireme::local;

// Every segment size against every shape of counts: what a sender stages is what the receivers
// take, in order and once.
TEST(comm_local_exchange_plan, pieces_of_all_segments_make_up_every_part) {
  for (int size = 1; size <= 9; ++size)
    for (uint64_t seed = 0; seed < 40; ++seed) {
      std::vector<size_t> counts;
      for (int q = 0; q < size; ++q) {
        const uint64_t dice = mix64(seed * 100 + uint64_t(q));
        counts.push_back(dice % 3 == 0 ? 0 : dice % 50);
      }
      auto part = [&](int q) { return counts[size_t(q)]; };
      for (int rank = 0; rank < size; ++rank)
        for (size_t each : {1, 2, 7, 16, 1000}) {
          const size_t total = stream_offset(part, size, rank, rank);
          size_t sum = 0;
          for (int q = 0; q < size; ++q) sum += q == rank ? 0 : counts[size_t(q)];
          ASSERT_EQ(total, sum);
          std::vector<int> owner(total, -1);  // of each place in the stream
          for (int q = 0; q < size; ++q) {
            if (q == rank) continue;
            const size_t offset = stream_offset(part, size, rank, q);
            size_t next = 0;
            for (uint64_t k = 0; k * each < total; ++k) {
              const Piece piece = piece_of(offset, counts[size_t(q)], each, k);
              if (piece.size == 0) continue;
              ASSERT_EQ(piece.of_part, next);
              ASSERT_LE(piece.of_segment + piece.size, each);
              for (size_t i = 0; i < piece.size; ++i) {
                int& place = owner[k * each + piece.of_segment + i];
                ASSERT_EQ(place, -1);
                place = q;
              }
              next += piece.size;
            }
            ASSERT_EQ(next, counts[size_t(q)]);
          }
          for (int q : owner) ASSERT_NE(q, -1);
        }
    }
}

TEST(comm_local_exchange_plan, the_right_neighbour_comes_first) {
  auto part = [](int q) { return size_t(q + 1) * 10; };
  EXPECT_EQ(stream_offset(part, 4, 1, 2), 0u);
  EXPECT_EQ(stream_offset(part, 4, 1, 3), 30u);
  EXPECT_EQ(stream_offset(part, 4, 1, 0), 70u);
  EXPECT_EQ(stream_offset(part, 4, 1, 1), 80u);
}

}  // namespace exchange_plan_test
