// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/support/backends.h"
#include "tests/support/conformance.h"
#include "tests/support/namespaces.h"
#include "tests/support/ports.h"
#include "trireme/comm/hybrid/layout.h"
#include "trireme/comm/registry.h"
#include "trireme/comm/start/run.h"

namespace hybrid_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using trireme::detail::HostLayout;
using trireme::detail::plan_segments;

// This test again, as one rank: it finds TRIREME_TEST_BODY in its environment.
const char* body_asked_for() { return std::getenv("TRIREME_TEST_BODY"); }

struct Job {
  Hosts& hosts;
  int per_host, size;
  std::string backend = "hybrid";
  PrivateFolder folder{};
  int port = std::min(free_tcp_port(), 65000);
  std::vector<std::unique_ptr<Command>> ranks{};

  void start(const std::string& body) {
    write_file_atomic(folder / "secret", std::string(64, 'a'));
    ::chmod((folder / "secret").c_str(), 0600);
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    for (int r = 0; r < size; ++r) {
      Environment env{{"RANK", std::to_string(r)},
                      {"WORLD_SIZE", std::to_string(size)},
                      {"LOCAL_RANK", std::to_string(r % per_host)},
                      {"LOCAL_WORLD_SIZE", std::to_string(per_host)},
                      {"MASTER_ADDR", Hosts::address(0)},
                      {"MASTER_PORT", std::to_string(port)},
                      {"TORCHELASTIC_RUN_ID", "hybrid"},
                      {"TRIREME_SECRET_FILE", folder / "secret"},
                      {"TRIREME_TEST_BODY", body}};
      ranks.push_back(std::make_unique<Command>(
          hosts.on(r / per_host,
                   {std::filesystem::read_symlink("/proc/self/exe").string(),
                    std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()}),
          CommandOptions{env, {}}));
    }
  }
  void expect_all_fine() {
    for (size_t r = 0; r < ranks.size(); ++r)
      EXPECT_EQ(ranks[r]->finish(std::chrono::seconds(60)), 0)
          << "rank " << r << ": " << ranks[r]->out << ranks[r]->err;
  }
};

}  // namespace

// What hosts call differs, and all of them wait: with check=hash, the default.
TEST(comm_hybrid, by_default_calls_that_wait_for_each_other_are_named_in_seconds) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no Gloo to go across hosts with";
  SpawnOptions options;
  options.backend = "hybrid";
  options.timeout = std::chrono::seconds(60);
  options.env = [](int rank) {
    return std::vector<std::string>{"TRIREME_HOST_ID=" + std::to_string(rank)};
  };
  options.args = {std::string("--gtest_filter=comm_hybrid.") +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name()};
  spawn(
      2,
      [](Group g) {
        g.barrier();
        at::Tensor x = at::ones({4});
        std::vector<at::Tensor> parts{at::zeros({4}), at::zeros({4})};
        const auto start = Clock::now();
        std::string text;
        try {
          (g.rank() ? g.scatter(x, {}, 0) : g.gather(parts, x, 0)).wait();
        } catch (const Mismatch& e) {
          text = e.what();
        }
        for (const char* part : {"call 2 of group world: rank 0 called gather(float32[4], root 0)",
                                 ", but rank 1 called scatter(float32[4], root 0)"})
          trireme::check<Error>(text.find(part) != std::string::npos, "{}", text);
        trireme::check<Error>(seconds_since(start) < 8, "{} s", seconds_since(start));
      },
      options);
}

// Ranks 0 and 1 on one host, 2 and 3 on another. Every rank makes each group's calls in one order;
// rank 0 waits first in the group made last, to which the others come only behind the world's.
static void expect_all_groups_get_on(const std::string& check, CallSite site = CallSite::here()) {
  SpawnOptions options;
  options.backend = "hybrid";
  options.check = check;
  options.timeout = std::chrono::seconds(20);
  options.env = [](int rank) {
    return std::vector<std::string>{"TRIREME_HOST_ID=" + std::to_string(rank / 2)};
  };
  options.args = {std::string("--gtest_filter=comm_hybrid.") +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name()};
  spawn(
      4,
      [](Group world) {
        Group inside = world.split(world.rank() / 2), across = world.split(world.rank() % 2),
              most = world.split(world.rank() < 3 ? 0 : -1);
        for (Group g : {inside, across, most}) {
          at::Tensor a = at::ones({1 << 20}), b = at::ones({1 << 18});
          Work in_world = world.all_reduce(a);
          if (world.rank() != 0) in_world.wait();
          if (g) g.all_reduce(b).wait();
          if (world.rank() == 0) {
            // By asking, too.
            at::Tensor c = at::ones({1 << 20});
            while (!in_world.is_completed())
              ;
            Work again = world.all_reduce(c), mine = g.all_reduce(b);
            while (!mine.is_completed())
              ;
            again.wait();
          } else {
            at::Tensor c = at::ones({1 << 20});
            world.all_reduce(c).wait();
            if (g) g.all_reduce(b).wait();
          }
          trireme::check<Error>(a.eq(4).all().item<bool>(), "not the sum of the world");
          if (g) {
            const double n = g.size();
            trireme::check<Error>(b.eq(n * n).all().item<bool>(), "not the sum of the group");
          }
        }
        world.barrier();
      },
      options, site);
}

TEST(comm_hybrid, whichever_group_a_rank_waits_in_all_get_on) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no Gloo to go across hosts with";
  expect_all_groups_get_on("hash");
}
TEST(comm_hybrid, so_they_do_where_each_call_is_compared) {
  if (!present("gloo")) GTEST_SKIP() << "this build has no Gloo to go across hosts with";
  expect_all_groups_get_on("each");
}

TEST(comm_hybrid, layout_numbers_hosts_by_their_first_rank) {
  HostLayout even({0, 1, 0, 1});
  EXPECT_TRUE(even.is_even());
  EXPECT_EQ(even.hosts(), 2);
  EXPECT_EQ(even.peers_inside(2), (std::vector<int>{0, 2}));
  EXPECT_EQ(even.peers_across(2), (std::vector<int>{2, 3}));
  HostLayout uneven({0, 0, 2, 0, 2});
  EXPECT_FALSE(uneven.is_even());
  EXPECT_EQ(uneven.host(4), 1);
  EXPECT_EQ(uneven.index(3), 2);
  EXPECT_EQ(uneven.peers_across(0), (std::vector<int>{0, 2}));
}

// Every way to put up to seven ranks on hosts.
TEST(comm_hybrid, layouts_partition_the_ranks_both_ways) {
  for (int n = 1; n <= 7; ++n) {
    std::vector<int> leader(static_cast<size_t>(n), 0);
    int layouts = 0;
    std::function<void(size_t)> each = [&](size_t r) {
      if (r == leader.size()) {
        ++layouts;
        const HostLayout l(leader);
        for (int rank = 0; rank < n; ++rank) {
          const auto& inside = l.peers_inside(rank);
          ASSERT_EQ(inside[static_cast<size_t>(l.index(rank))], rank);
          const auto across = l.peers_across(rank);
          ASSERT_NE(std::find(across.begin(), across.end(), rank), across.end());
          if (l.is_even()) {
            ASSERT_EQ(across[static_cast<size_t>(l.host(rank))], rank);
          }
        }
        return;
      }
      for (size_t q = 0; q <= r; ++q) {
        if (q < r && leader[q] != static_cast<int>(q)) continue;  // no leader
        leader[r] = static_cast<int>(q);
        each(r + 1);
      }
    };
    each(0);
    EXPECT_GE(layouts, n);
  }
}

TEST(comm_hybrid, segments_cover_what_divides_and_leave_a_tail) {
  for (int local = 1; local <= 5; ++local)
    for (int64_t most : {1, 4, 7, 100})
      for (int64_t count = 0; count < 60; ++count) {
        const auto p = plan_segments(count, local, most);
        EXPECT_LT(p.tail, local);
        int64_t covered = 0;
        for (int64_t k = 0; k < p.segments; ++k) {
          EXPECT_EQ(p.begin(k), covered);
          EXPECT_GT(p.size(k, count - p.tail), 0);
          EXPECT_EQ(p.size(k, count - p.tail) % local, 0);
          covered += p.size(k, count - p.tail);
        }
        EXPECT_EQ(covered + p.tail, count);
      }
}

// Two and three hosts of two ranks, found by themselves; one link is slow.
class comm_hybrid_hosts : public ::testing::TestWithParam<int> {};

TEST_P(comm_hybrid_hosts, conform) {
  if (body_asked_for()) {
    Group g = init_process_group({.backend = "hybrid", .timeout = std::chrono::seconds(40)});
    conform(g, {at::kFloat, at::kLong}, {{0}, {3, 5}, {200003}}, false);
    // Ranks of one host got a group that shares memory.
    Group inside = g.split(g.rank() / 2);
    EXPECT_EQ(inside.backend(), "local");
    // 8 MiB leave the slow host at 50 MB/s: a link that nothing limits takes a twentieth of it.
    at::Tensor large = at::ones({2 << 20});
    g.barrier();
    const auto begin = Clock::now();
    g.all_reduce(large).wait();
    const double seconds = seconds_since(begin);
    trireme::check<Error>(seconds > 0.1, "8 MiB took {:.3f} s: the link is not limited", seconds);
    trireme::check<Error>(large.eq(g.size()).all().item<bool>(), "wrong sums across the slow link");
    return;
  }
  if (!present("gloo")) GTEST_SKIP() << "this build has no Gloo to go across hosts with";
  Hosts hosts(GetParam());
  if (!hosts.why().empty()) GTEST_SKIP() << hosts.why();
  ASSERT_TRUE(hosts.limit(1, "400mbit"));
  Job job{hosts, 2, 2 * GetParam()};
  job.start("conform");
  job.expect_all_fine();
}
INSTANTIATE_TEST_SUITE_P(two_and_three, comm_hybrid_hosts, ::testing::Values(2, 3));

// What a rank prints when its group fails.
namespace {
void reduce_until_it_fails(const std::string& backend) {
  Group g = init_process_group({.backend = backend, .timeout = std::chrono::seconds(60)});
  at::Tensor t = at::ones({100000});
  g.all_reduce(t).wait();
  std::fprintf(stderr, "rank %d is in\n", g.rank());
  try {
    while (true) g.all_reduce(t, ReduceOp::max).wait();
  } catch (const PeerLost& e) {
    std::fprintf(stderr, "PeerLost: %s\n", e.what());
  }
}
}  // namespace

TEST(comm_hybrid, a_killed_rank_is_lost_to_ranks_on_both_hosts) {
  if (body_asked_for()) return reduce_until_it_fails("hybrid");
  if (!present("gloo")) GTEST_SKIP() << "this build has no Gloo to go across hosts with";
  Hosts hosts(2);
  if (!hosts.why().empty()) GTEST_SKIP() << hosts.why();
  Job job{hosts, 2, 4};
  job.start("kill");
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->wait_for("is in")) << rank->err;
  const auto begin = Clock::now();
  job.ranks[3]->send(SIGKILL);
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(job.ranks[r]->wait_for("PeerLost: ")) << "rank " << r << job.ranks[r]->err;
    EXPECT_LT(seconds_since(begin), 15);  // 5 s, with slack
  }
}

TEST(comm_hybrid, a_host_whose_link_is_cut_is_lost_to_the_others) {
  if (body_asked_for()) return reduce_until_it_fails("hybrid");
  if (!present("gloo")) GTEST_SKIP() << "this build has no Gloo to go across hosts with";
  Hosts hosts(2);
  if (!hosts.why().empty()) GTEST_SKIP() << hosts.why();
  Job job{hosts, 2, 4};
  job.start("cut");
  for (auto& rank : job.ranks) ASSERT_TRUE(rank->wait_for("is in")) << rank->err;
  const auto begin = Clock::now();
  ASSERT_TRUE(hosts.cut(1));
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_TRUE(job.ranks[r]->wait_for("PeerLost: ")) << "rank " << r << job.ranks[r]->err;
    EXPECT_LT(seconds_since(begin), 15);
  }
}

}  // namespace hybrid_test
