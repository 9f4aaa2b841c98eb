// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/job_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "tests/support/forked.h"
#include "trireme/net/secret.h"
#include "trireme/rendezvous/rendezvous.h"

namespace trireme::job_table_test {
namespace {

using namespace std::chrono_literals;

Deadline soon() { return Deadline::after(20s); }
const net::Getenv kNothing = [](const std::string&) { return std::nullopt; };

RankEnv rank_of_two(int rank, const std::string& job) {
  RankEnv env;
  env.rank = rank;
  env.world_size = env.local_world_size = 2;
  env.job_id = job;
  return env;
}

}  // namespace

TEST(rendezvous_job_table, of_a_world_of_one_is_the_process_and_goes_with_its_last_user) {
  {
    const auto one = open_job_table({}, soon(), kNothing),
               other = open_job_table({}, soon(), kNothing);
    one->set("key", "value");
    EXPECT_EQ(other->try_get("key"), "value");
  }
  EXPECT_EQ(open_job_table({}, soon(), kNothing)->try_get("key"), std::nullopt);
}

TEST(rendezvous_job_table, nobody_waits_for_the_others_and_a_rank_may_open_it_twice) {
  const std::string job = net::random_token();
  auto served = open_job_table(rank_of_two(0, job), soon(), kNothing);
  auto again = open_job_table(rank_of_two(0, job), soon(), kNothing);
  again->set("from", "rank 0");
  auto other = open_job_table(rank_of_two(1, job), soon(), kNothing);
  auto more = open_job_table(rank_of_two(1, job), soon(), kNothing);
  EXPECT_EQ(other->get("from", soon()), "rank 0");
  served.reset();
  more->set("still", "there");
  EXPECT_EQ(again->try_get("still"), "there") << "rank 0 has another connection";
  other.reset();
  more.reset();
}

TEST(rendezvous_job_table, open_store_may_be_used_beside_it) {
  const std::string job = net::random_token();
  auto table = open_job_table(rank_of_two(0, job), soon(), kNothing);
  std::thread other([&] {
    ServerHandle server;
    open_store(rank_of_two(1, job), "env://", soon(), server, kNothing);
    EXPECT_TRUE(open_job_table(rank_of_two(1, job), soon(), kNothing)->check({}));
  });
  ServerHandle server;
  auto store = open_store(rank_of_two(0, job), "env://", soon(), server, kNothing);
  other.join();
  EXPECT_NE(store->describe(), "");
}

TEST(rendezvous_job_table, a_forked_child_has_a_table_of_its_own) {
  const auto parents = open_job_table({}, soon(), kNothing);
  parents->set("key", "value");
  testing::ForkedChild child(testing::ChildEnd::exit_at_once, [] {
    return open_job_table({}, soon(), kNothing)->try_get("key") ? "the parent's" : "";
  });
  EXPECT_EQ(child.ended(), "");
}

}  // namespace trireme::job_table_test
