// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <climits>
#include <cstring>

#include "tests/comm/local/groups.h"
#include "tests/comm/local/messages.h"

namespace p2p_corners_test {

// Messages where programs seldom go: groups of groups at the same time, sends that cross, sizes
// that do not fit, the ends of the range of tags.
using namespace trireme;
using namespace trireme::local;
using namespace trireme::testing;

namespace {

Call barrier(CallSite at = CallSite::here()) { return {.op = Collective::barrier, .site = at}; }

void expect_clean(const std::vector<Ended>& ended) {
  for (size_t r = 0; r < ended.size(); ++r) EXPECT_EQ(ended[r].what, "") << "rank " << r;
}

/// What every pair of ranks sends in a group: other bytes in every group, direction and size.
Bytes text_of(size_t group, int from, int to, size_t n) {
  return pattern(n, 1 + group * 1000000 + static_cast<uint64_t>(from * 100 + to) * 1000 + n % 997);
}

// Every pair of every group exchanges messages of every size under one tag, all at the same time.
void all_groups_at_once(World& w) {
  std::vector<Engine*> groups{w.all.get()};
  const std::vector<std::vector<int>> members{
      {0, 1, 2, 3}, {1, 0}, {3, 2}, {3, 1, 0}, {2, 0, 1, 3}};
  for (size_t g = 1; g < members.size(); ++g) {
    const bool mine = std::count(members[g].begin(), members[g].end(), w.rank()) != 0;
    groups.push_back(mine ? &w.group("world/" + std::to_string(g), members[g]) : nullptr);
  }
  const size_t sizes[] = {0, 33, 9000, 0, 300000, 7};
  std::vector<Bytes> out, in, want;
  std::vector<std::pair<Engine*, Ticket>> open;
  out.reserve(1000), in.reserve(1000);  // buffers stay where they are
  auto send_all = [&](size_t g) {
    Engine& e = *groups[g];
    for (int q = 0; q < e.size(); ++q)
      for (size_t n : sizes)
        if (q != e.rank()) {
          out.push_back(text_of(g, e.rank(), q, n));
          open.emplace_back(&e, e.post(send_of(q, 5, out.back().data(), n)));
        }
  };
  auto recv_all = [&](size_t g) {
    Engine& e = *groups[g];
    for (int q = e.size() - 1; q >= 0; --q)
      for (size_t n : sizes)
        if (q != e.rank()) {
          in.emplace_back(n);
          want.push_back(text_of(g, q, e.rank(), n));
          open.emplace_back(&e, e.post(recv_of(q, 5, in.back().data(), n)));
        }
  };
  for (size_t g = 0; g < groups.size(); ++g)
    if (groups[g]) w.rank() % 2 ? send_all(g) : recv_all(g);
  // A collective of one group in the middle of the messages of all.
  groups[4]->run(barrier());
  for (size_t g = groups.size(); g-- > 0;)
    if (groups[g]) w.rank() % 2 ? recv_all(g) : send_all(g);
  for (size_t i = open.size(); i-- > 0;) open[i].first->wait(open[i].second, soon());
  for (size_t i = 0; i < in.size(); ++i)
    check<Error>(in[i] == want[i], "message {} of {} bytes is another one", i, in[i].size());
  w.all->run(barrier());
}

void named_soon(const std::vector<Ended>& ended, const std::vector<std::string>& parts) {
  for (size_t r = 0; r < ended.size(); ++r) {
    EXPECT_LT(ended[r].after, 4) << "rank " << r;
    EXPECT_TRUE(has(ended[r].what, "Mismatch: ranks wait for each other: ")) << ended[r].what;
    for (const std::string& part : parts) EXPECT_TRUE(has(ended[r].what, part)) << ended[r].what;
  }
}

}  // namespace

TEST(comm_local_p2p_corners, messages_of_groups_and_of_their_parent_do_not_meet) {
  expect_clean(worlds_as_threads(4, all_groups_at_once));
  expect_clean(worlds_as_processes(4, all_groups_at_once));
}

TEST(comm_local_p2p_corners, any_source_of_a_group_is_one_of_its_ranks) {
  auto body = [](World& w) {
    Engine* group = w.rank() != 1 ? &w.group("world/1", {3, 2, 0}) : nullptr;
    int64_t got = -1;
    if (w.rank() == 0) {  // rank 2 of the group
      // Rank 1 sends the same tag to rank 0 in the world.
      const Ticket outer = w.all->post(recv_of(kAnySource, 4, &got, sizeof got));
      for (int i = 0; i < 40; ++i) {
        int64_t v = -1;
        const Ticket t = group->post(recv_of(kAnySource, 4, &v, sizeof v));
        group->wait(t, soon());
        check<Error>(v == 100 + group->source(t) && v < 102, "{} from {}", v, group->source(t));
      }
      w.all->wait(outer, soon());
      check<Error>(got == 7 && w.all->source(outer) == 1, "{}", got);
    } else if (group) {
      for (int i = 0; i < 20; ++i) {
        int64_t v = 100 + group->rank();
        group->run(send_of(2, 4, &v, sizeof v));
      }
    } else {
      got = 7;
      w.all->run(send_of(0, 4, &got, sizeof got));
    }
    w.all->run(barrier());
  };
  expect_clean(worlds_as_threads(4, body));
  expect_clean(worlds_as_processes(4, body));
}

TEST(comm_local_p2p_corners, sends_that_cross_complete_up_to_the_eager_size) {
  auto body = [](World& w) {
    const int peer = 1 - w.rank();
    Bytes out = pattern(kEagerBytes, uint64_t(w.rank())), in(kEagerBytes);
    w.all->run(send_of(peer, 0, out.data(), out.size()));
    w.all->run(recv_of(peer, 0, in.data(), in.size()));
    check<Error>(in == pattern(kEagerBytes, uint64_t(peer)), "wrong bytes");
    w.all->run(barrier());
  };
  expect_clean(worlds_as_threads(2, body));
  expect_clean(worlds_as_processes(2, body));
}

// Side by side: each takes more than a second to be sure.
TEST(comm_local_p2p_corners, sends_that_cross_and_nobody_takes_are_named) {
  std::vector<std::thread> runs;
  runs.emplace_back([] {
    auto body = [](World& w) {
      Bytes b(kEagerBytes + 1);
      w.all->run(send_of(1 - w.rank(), 3, b.data(), b.size()));
      w.all->run(recv_of(1 - w.rank(), 3, b.data(), b.size()));
    };
    named_soon(worlds_as_threads(2, body),
               {"rank 0 is in send(uint8[8193], to rank 1) at ",
                "p2p_corners_test.cc:", "with tag 3 of group world, and needs rank 1",
                "rank 1 is in send(uint8[8193], to rank 0) at ", "and needs rank 0"});
  });
  // Small ones, more than the receiver keeps.
  runs.emplace_back([] {
    auto body = [](World& w) {
      Bytes b(kEagerBytes);
      for (int i = 0; i < 2000; ++i) w.all->run(send_of(1 - w.rank(), 0, b.data(), b.size()));
    };
    named_soon(worlds_as_threads(2, body), {"rank 0 is in send(uint8[8192], to rank 1)",
                                            "rank 1 is in send(uint8[8192], to rank 0)"});
  });
  runs.emplace_back([] {
    auto body = [](World& w) {
      Bytes b(100000);
      w.all->run(send_of((w.rank() + 1) % 3, 0, b.data(), b.size()));
      w.all->run(recv_of((w.rank() + 2) % 3, 0, b.data(), b.size()));
    };
    named_soon(
        worlds_as_threads(3, body),
        {"rank 0 is in send(uint8[100000], to rank 1)", "and needs rank 1; rank 1 is in send(",
         "and needs rank 2; rank 2 is in send(", "and needs rank 0"});
  });
  // One in the world, one in a group.
  runs.emplace_back([] {
    auto body = [](World& w) {
      Engine& pair = w.group("world/1", {1, 0});
      Bytes b(100000);
      if (w.rank() == 0) {
        w.all->run(send_of(1, 0, b.data(), b.size()));
        pair.run(recv_of(0, 0, b.data(), b.size()));
      } else {
        pair.run(send_of(1, 0, b.data(), b.size()));
        w.all->run(recv_of(0, 0, b.data(), b.size()));
      }
    };
    named_soon(worlds_as_threads(2, body),
               {"rank 0 is in send(uint8[100000], to rank 1)", "of group world, and needs rank 1",
                "of group world/1, and needs rank 0"});
  });
  for (auto& t : runs) t.join();
}

TEST(comm_local_p2p_corners, sends_that_cross_and_nobody_takes_are_named_between_processes) {
  auto body = [](World& w) {
    Bytes b(3 << 20);
    w.all->run(send_of(1 - w.rank(), 3, b.data(), b.size()));
    w.all->run(recv_of(1 - w.rank(), 3, b.data(), b.size()));
  };
  named_soon(worlds_as_processes(2, body), {"rank 0 is in send(uint8[3145728], to rank 1) at ",
                                            "rank 1 is in send(uint8[3145728], to rank 0) at "});
}

TEST(comm_local_p2p_corners, a_message_larger_or_smaller_than_its_recv_names_both) {
  const std::pair<size_t, size_t> sizes[] = {{0, 4},       {5, 4},      {8192, 8193},
                                             {8193, 8192}, {4, 100000}, {100000, 0}};
  for (const auto& [sent, expected] : sizes)
    for (bool recv_first : {true, false}) {
      const int from = recv_first ? 0 : kAnySource;
      auto outcomes = as_threads(2, [=, sent = sent, expected = expected](Engine& e) {
        Bytes b(200000), untouched = b;
        if (e.rank() == 0) {
          if (recv_first) e.run(barrier());
          e.post(send_of(1, INT_MAX, b.data(), sent));
          if (!recv_first) e.run(barrier());
        } else {
          if (!recv_first) e.run(barrier());
          e.post(recv_of(from, INT_MAX, b.data(), expected));
          if (recv_first) e.run(barrier());
        }
        // The sender may get through one more call.
        const std::string o = outcome_of([&] {
          for (int i = 0; i < 2; ++i) e.run(barrier());
        });
        check<Error>(b == untouched, "memory was written");
        fail<Error>("{}", o);
      });
      const std::string want = fmt::format(
          "Mismatch: rank 0 sent uint8[{}] with tag 2147483647 to rank 1, which called "
          "recv(uint8[{}], from {}) at ",
          sent, expected, recv_first ? "rank 0" : "any rank");
      for (const std::string& o : outcomes) EXPECT_TRUE(has(o, want)) << o << "\nnot " << want;
    }
}

TEST(comm_local_p2p_corners, tags_at_the_ends_of_their_range_are_kept_apart) {
  const int tags[] = {0, INT_MAX, 1 << 16, INT_MAX - 1, (1 << 16) - 1, 1, 1 << 30};
  auto body = [&](Engine& e) {
    int out[7], in[7];
    std::vector<Ticket> open;
    for (int i = 0; i < 7; ++i) {
      out[i] = 10 * i + e.rank();
      open.push_back(e.post(send_of(1 - e.rank(), tags[i], &out[i], sizeof out[i])));
    }
    for (int i = 7; i-- > 0;)
      open.push_back(e.post(recv_of(1 - e.rank(), tags[i], &in[i], sizeof in[i])));
    for (const Ticket& t : open) e.wait(t, soon());
    for (int i = 0; i < 7; ++i)
      check<Error>(in[i] == 10 * i + 1 - e.rank(), "tag {}: {}", tags[i], in[i]);
  };
  trireme::testing::expect_clean(as_threads(2, body));
  trireme::testing::expect_clean(as_processes(2, body));
}

}  // namespace p2p_corners_test
