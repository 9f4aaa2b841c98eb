// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "trireme/comm/flight/dump_reader.h"
#include "trireme/comm/flight/verdict.h"

namespace format_test {

using namespace trireme::flight;

// tests/formats/flight-v1/ was written by two ranks when version 1 of the dumps landed. It must be
// read for ever.
TEST(comm_flight_format, version_1_is_read_with_all_its_values) {
  const auto all = read_dumps(trireme::testing::source_path("/tests/formats/flight-v1"));
  ASSERT_EQ(all.size(), 2u);
  for (int r : {0, 1}) {
    const History& h = all[size_t(r)];
    EXPECT_EQ(h.group, "world");
    EXPECT_EQ(h.backend, "local");
    EXPECT_EQ(h.host, "fixture");
    EXPECT_EQ(h.generation, 0x0123456789abcdefu);
    EXPECT_EQ(h.rank, r);
    EXPECT_EQ(h.world_rank, r);
    EXPECT_EQ(h.size, 2);
    EXPECT_EQ(h.why, "call 2: ranks differ");
    ASSERT_EQ(h.calls.size(), 2u);
    EXPECT_EQ(text_of(h.calls[0]), "broadcast(int64[3], root 1) at train.cc:10");
    EXPECT_EQ(h.calls[0].state, CallState::done);
    EXPECT_EQ(h.calls[1].state, CallState::matched);
    ASSERT_EQ(h.pairs.size(), 1u);
    EXPECT_EQ(text_of(h.pairs[0]), r ? "recv(bfloat16[12], from rank 0) at train.cc:20"
                                     : "send(bfloat16[12], to rank 1) at train.cc:20");
    EXPECT_EQ(h.pairs[0].tag, 7);
  }
  EXPECT_EQ(
      judge(all).sentence,
      "rank 1 called reduce(float64[1000], max, root 0) at train.cc:30 as its call 2 of group "
      "world where rank 0 called reduce(float64[1001], max, root 0) at train.cc:31");
}

}  // namespace format_test
