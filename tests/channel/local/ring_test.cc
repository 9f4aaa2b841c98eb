// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/ring.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "tests/channel/workers.h"
#include "trireme/base/error.h"

namespace trireme::channel::local {
namespace {

using conformance::pattern;

std::unique_ptr<Lane, void (*)(void*)> new_lane() {
  void* memory = std::aligned_alloc(4096, sizeof(Lane));
  std::memset(memory, 0, sizeof(Lane));
  return {static_cast<Lane*>(memory), std::free};
}

TEST(channel_local_ring, records_come_out_as_they_went_in_at_every_place) {
  const auto lane = new_lane();
  RingWriter out(lane.get());
  RingReader in(lane.get());
  std::mt19937_64 random(1);
  std::vector<std::pair<uint64_t, uint64_t>> under_way;  // bytes, seed
  for (uint64_t i = 0; i < 20000; ++i) {
    const uint64_t bytes = random() % 8 == 0 ? 1 + random() % kRecordMost : 1 + random() % 300;
    unsigned char* to = out.room(bytes);
    if (to) {
      std::memcpy(to, pattern(bytes, i).data(), bytes);
      out.publish(i % 2 ? kShort : kLong, bytes);
      under_way.emplace_back(bytes, i);
    }
    while (!under_way.empty() && (!to || random() % 3 == 0)) {
      const auto record = in.next();
      ASSERT_TRUE(record);
      const auto [size, seed] = under_way.front();
      ASSERT_EQ(record->bytes, size);
      ASSERT_EQ(record->kind, seed % 2 ? kShort : kLong);
      ASSERT_EQ(std::memcmp(record->data, pattern(size, seed).data(), size), 0);
      in.taken();
      under_way.erase(under_way.begin());
    }
    EXPECT_EQ(in.any(), !under_way.empty());
  }
}

TEST(channel_local_ring, a_full_ring_has_room_again_when_something_was_taken) {
  const auto lane = new_lane();
  RingWriter out(lane.get());
  RingReader in(lane.get());
  int records = 0;
  for (; out.room(1000); ++records) out.publish(kShort, 1000);
  EXPECT_EQ(records, static_cast<int>(kRingBytes / 1008));
  EXPECT_EQ(out.room(1000), nullptr);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(in.next());
    in.taken();
  }
  EXPECT_NE(out.room(1000), nullptr);
}

TEST(channel_local_ring, two_threads_lose_nothing) {
  const auto lane = new_lane();
  constexpr uint64_t kRecords = 50000;
  std::thread sender([&] {
    RingWriter out(lane.get());
    for (uint64_t i = 0; i < kRecords;) {
      unsigned char* to = out.room(8 + i % 100);
      if (!to) {
        std::this_thread::yield();
        continue;
      }
      std::memcpy(to, &i, 8);
      out.publish(kShort, 8 + i % 100);
      ++i;
    }
  });
  RingReader in(lane.get());
  for (uint64_t i = 0; i < kRecords;) {
    const auto record = in.next();
    if (!record) {
      std::this_thread::yield();
      continue;
    }
    uint64_t number;
    std::memcpy(&number, record->data, 8);
    ASSERT_EQ(number, i);
    ASSERT_EQ(record->bytes, 8 + i % 100);
    in.taken();
    ++i;
  }
  sender.join();
}

TEST(channel_local_ring, whatever_is_in_it_no_record_lies_outside_and_reading_ends) {
  std::mt19937_64 random(2);
  int refused = 0, taken = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto lane = new_lane();
    auto* words = reinterpret_cast<uint64_t*>(lane->ring);
    for (size_t i = 0; i < kRingBytes / 8; i += 1 + random() % 64)
      words[i] = random() % 2 ? random() : (random() % 4) << 32 | random() % 70000;
    // Likely ones first: small records, skips, one of a whole ring.
    words[0] = (random() % 4) << 32 | (random() % 3 ? random() % 40 : random() % (2 * kRingBytes));
    lane->head = random() % 3 ? random() % (kRingBytes + 16) / 8 * 8 : random();
    RingReader in(lane.get());
    try {
      for (int n = 0; n < 100000; ++n) {
        const auto record = in.next();
        if (!record) break;
        ASSERT_LT(n, static_cast<int>(kRingBytes / 8));
        ASSERT_GE(record->data, lane->ring);
        ASSERT_LE(record->data + record->bytes, lane->ring + kRingBytes);
        in.taken();
        ++taken;
      }
    } catch (const Corrupt&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(taken, 100);
}

TEST(channel_local_ring, a_receiver_that_takes_what_was_never_there_is_found_out) {
  for (const uint64_t taken : {uint64_t{1} << 40, ~uint64_t{0}}) {
    const auto lane = new_lane();
    RingWriter out(lane.get());
    lane->taken = taken;
    EXPECT_THROW(
        {
          while (out.room(1000)) out.publish(kShort, 1000);
        },
        Corrupt)
        << taken;
  }
}

}  // namespace
}  // namespace trireme::channel::local
