// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/p2p_match.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>

#include "trireme/base/philox.h"

namespace p2p_match_test {

using namespace trireme;
using namespace trireme::local;

namespace {

uint32_t dice(uint64_t seed, uint64_t i, int which) {
  return philox_block(seed, 3, i)[size_t(which)];
}

}  // namespace

// Against two plain lists, searched from the front.
TEST(comm_local_p2p_match, recvs_and_messages_meet_as_mpi_says) {
  struct Entry {
    int source, tag;
    uint32_t id;
  };
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const int sources = 1 + int(seed % 4);
    MatchBook book(sources);
    std::deque<Entry> recvs, messages;
    for (uint32_t i = 0; i < 200; ++i) {
      const int source = int(dice(seed, i, 0) % uint32_t(sources)), tag = int(dice(seed, i, 1) % 3);
      uint32_t want = MatchBook::kNone;
      if (dice(seed, i, 2) % 2) {
        const int from = dice(seed, i, 3) % 3 ? source : MatchBook::kAny;
        for (size_t k = 0; k < messages.size() && want == MatchBook::kNone; ++k)
          if (messages[k].tag == tag && (from == MatchBook::kAny || messages[k].source == from)) {
            want = messages[k].id;
            messages.erase(messages.begin() + long(k));
          }
        if (want == MatchBook::kNone) recvs.push_back({from, tag, i});
        ASSERT_EQ(book.post(from, tag, i), want) << "seed " << seed << " step " << i;
      } else {
        for (size_t k = 0; k < recvs.size() && want == MatchBook::kNone; ++k)
          if (recvs[k].tag == tag &&
              (recvs[k].source == MatchBook::kAny || recvs[k].source == source)) {
            want = recvs[k].id;
            recvs.erase(recvs.begin() + long(k));
          }
        ASSERT_EQ(book.arrive(source, tag), want) << "seed " << seed << " step " << i;
        if (want == MatchBook::kNone) {
          messages.push_back({source, tag, i});
          book.keep(source, tag, i);
        }
      }
    }
  }
}

TEST(comm_local_p2p_match, numbers_done_in_any_order_are_remembered) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    DoneNumbers numbers;
    std::vector<uint64_t> open;
    std::set<uint64_t> done;
    uint64_t last = 0;
    for (uint64_t i = 0; i < 300; ++i) {
      if (open.empty() || dice(seed, i, 0) % 2) {
        open.push_back(numbers.issue());
        ASSERT_EQ(open.back(), ++last);
      } else {
        const size_t k = dice(seed, i, 1) % std::min<size_t>(open.size(), 1 + seed % 5);
        numbers.done(open[k]);
        done.insert(open[k]);
        open.erase(open.begin() + long(k));
      }
      for (uint64_t n = 1; n <= last + 2; ++n) ASSERT_EQ(numbers.is_done(n), done.count(n) == 1);
    }
  }
}

// Pieces lie whole in the ring, none over bytes that are still in use; an empty ring takes half of
// its size anywhere.
TEST(comm_local_p2p_match, pieces_of_a_ring_do_not_overlap) {
  constexpr size_t kRing = 4096;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    RingSpace space(kRing);
    struct Piece {
      uint64_t at, end;
      size_t n;
    };
    std::deque<Piece> live;
    for (uint64_t i = 0; i < 300; ++i) {
      const size_t n = 1 + dice(seed, i, 0) % (kRing / 2);
      uint64_t at = 0;
      if (dice(seed, i, 1) % 3 == 0 && !live.empty()) {
        space.release_up_to(live.front().end);
        live.pop_front();
      } else if (space.reserve(n, at)) {
        const size_t place = at % kRing;
        ASSERT_LE(place + n, kRing);
        for (const Piece& p : live)
          ASSERT_TRUE(place + n <= p.at % kRing || p.at % kRing + p.n <= place);
        live.push_back({at, space.head(), n});
      } else {
        ASSERT_FALSE(live.empty()) << "an empty ring refused " << n;
      }
    }
  }
}

TEST(comm_local_p2p_match, blocks_cover_a_message_once) {
  for (size_t bytes : {size_t{1}, size_t{8191}, size_t{8192}, size_t{8193}, size_t{65537},
                       size_t{1} << 20, (size_t{5} << 30) + 3}) {
    const Blocks blocks(bytes);
    size_t next = 0;
    for (uint64_t i = 0; i < blocks.count(); ++i) {
      ASSERT_EQ(blocks.begin(i), next);
      ASSERT_GT(blocks.size(i), 0u);
      next += blocks.size(i);
    }
    EXPECT_EQ(next, bytes);
  }
}

}  // namespace p2p_match_test
