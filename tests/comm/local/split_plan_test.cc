// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/split_plan.h"

#include <gtest/gtest.h>

namespace split_plan_test {

using namespace trireme::local;
using trireme::Collective;

TEST(comm_local_split_plan, chunks_cover_in_order_on_whole_lines_and_differ_by_one_line) {
  for (size_t item : {1, 2, 4, 8, 16}) {
    const size_t line = 64 / item;
    for (int size = 1; size <= 17; ++size)
      for (size_t count = 0; count <= 70 * line; count += count < 3 * line ? 1 : line / 2 + 3) {
        size_t at = 0, least = ~size_t{0}, most = 0;
        for (int r = 0; r < size; ++r) {
          const Range c = chunk_of(count, item, size, r);
          ASSERT_EQ(c.begin, at) << count << " of " << item << ", rank " << r << " of " << size;
          ASSERT_LE(c.begin, c.end);
          ASSERT_TRUE(c.begin == count || c.begin % line == 0);
          const size_t lines = (c.size() + line - 1) / line;
          least = std::min(least, lines), most = std::max(most, lines);
          at = c.end;
        }
        ASSERT_EQ(at, count);
        ASSERT_LE(most - least, 1u);
      }
  }
}

TEST(comm_local_split_plan, huge_counts_do_not_overflow) {
  const size_t count = (size_t{1} << 48) - 1;
  size_t at = 0;
  for (int r = 0; r < 64; ++r) {
    const Range c = chunk_of(count, 8, 64, r);
    ASSERT_EQ(c.begin, at);
    at = c.end;
  }
  EXPECT_EQ(at, count);
}

TEST(comm_local_split_plan, segments_cover_in_order_and_fit_the_staging_buffer) {
  for (Collective op : {Collective::all_reduce, Collective::broadcast, Collective::all_gather,
                        Collective::reduce_scatter, Collective::gather, Collective::scatter})
    for (size_t item : {1, 2, 4, 8, 16})
      for (int size : {1, 2, 3, 5, 8, 63, 64})
        for (size_t count :
             {size_t{0}, size_t{1}, segment_bytes(size) / item - 1, segment_bytes(size) / item,
              segment_bytes(size) / item + 1, size_t{1000003}}) {
          const uint64_t segments = segment_count(op, count, item, size);
          const bool all_at_once = op == Collective::reduce_scatter || op == Collective::scatter;
          const size_t parts = all_at_once ? static_cast<size_t>(size) : 1;
          size_t at = 0;
          for (uint64_t k = 0; k < segments; ++k) {
            const Range s = segment_range(op, count, item, size, k);
            ASSERT_EQ(s.begin, at);
            ASSERT_GT(s.size(), 0u);
            ASSERT_LE(s.size() * item * parts, segment_bytes(size));
            at = s.end;
          }
          ASSERT_EQ(at, count);
        }
}

}  // namespace split_plan_test
