// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/plan/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::rpc::plan {

TEST(rpc_server_plan_placement, no_server_has_more_than_its_part_and_one_parameter) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint64_t> bytes(random() % 40);
    for (auto& b : bytes) b = random() % 3 ? random() % 100 : random() % 100000;
    const int servers = 1 + static_cast<int>(random() % 5);
    const auto server = place(bytes, servers);
    ASSERT_EQ(server.size(), bytes.size());
    std::vector<uint64_t> held(static_cast<size_t>(servers), 0);
    for (size_t i = 0; i < bytes.size(); ++i) held.at(static_cast<size_t>(server[i])) += bytes[i];
    const uint64_t all = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
    const uint64_t largest = bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
    for (const uint64_t h : held)
      EXPECT_LE(h, all / static_cast<uint64_t>(servers) + largest) << "seed " << seed;
    EXPECT_EQ(server, place(bytes, servers));
  }
}

TEST(rpc_server_plan_placement, there_may_be_more_servers_than_parameters_and_never_none) {
  EXPECT_EQ(place({8, 16}, 5), (std::vector<int>{1, 0}));
  EXPECT_TRUE(place({}, 3).empty());
  EXPECT_THROW(place({8}, 0), UsageError);
}

TEST(rpc_server_plan_placement, parameters_lie_apart_in_their_buffer) {
  const std::vector<int64_t> numels = {1, 0, 64, 65, 1000};
  const Places all = places(numels);
  for (size_t i = 0; i < numels.size(); ++i) {
    EXPECT_EQ(all.offsets[i] % kAligned, 0);
    const int64_t next = i + 1 < numels.size() ? all.offsets[i + 1] : all.size;
    EXPECT_GE(next - all.offsets[i], numels[i]);
  }
  EXPECT_EQ(all.size, 64 + 64 + 128 + 1024);
}

TEST(rpc_server_plan_placement, every_row_is_at_one_server_once) {
  for (int64_t rows : {1, 2, 7, 100})
    for (int servers : {1, 2, 3, 9}) {
      int64_t all = 0;
      for (int s = 0; s < servers; ++s) all += rows_at(rows, servers, s);
      EXPECT_EQ(all, rows);
      for (int64_t r = 0; r < rows; ++r)
        EXPECT_LT(r / servers, rows_at(rows, servers, static_cast<int>(r % servers)));
    }
}

TEST(rpc_server_plan_placement, lookups_ask_for_each_row_once_and_find_it_again) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const int64_t rows = seed % 3 == 0   ? 1 + static_cast<int64_t>(random() % 10)
                         : seed % 3 == 1 ? 5000
                                         : int64_t{1} << 37;
    const int servers = 1 + static_cast<int>(random() % 4);
    std::vector<int64_t> ids(random() % 200);
    for (auto& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
    const auto found = distinct_rows(ids.data(), static_cast<int64_t>(ids.size()), rows, servers);
    ASSERT_EQ(found.place.size(), ids.size());
    ASSERT_EQ(found.begins.size(), static_cast<size_t>(servers) + 1);
    EXPECT_EQ(found.begins.front(), 0);
    EXPECT_EQ(found.begins.back(), static_cast<int64_t>(found.rows.size()));
    EXPECT_EQ(found.rows.size(), std::set<int64_t>(ids.begin(), ids.end()).size());
    std::vector<int64_t> whole(found.rows.size());
    for (int s = 0; s < servers; ++s)
      for (auto i = static_cast<size_t>(found.begins[static_cast<size_t>(s)]);
           i < static_cast<size_t>(found.begins[static_cast<size_t>(s) + 1]); ++i) {
        whole[i] = found.rows[i] * servers + s;
        const bool first = i == static_cast<size_t>(found.begins[static_cast<size_t>(s)]);
        EXPECT_TRUE(first || found.rows[i - 1] < found.rows[i]);
      }
    for (size_t i = 0; i < ids.size(); ++i)
      EXPECT_EQ(whole.at(static_cast<size_t>(found.place[i])), ids[i]);
  }
}

}  // namespace trireme::rpc::plan
