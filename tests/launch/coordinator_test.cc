// SPDX-License-Identifier: Apache-2.0
// What the launcher that keeps the store does to the standings of others, in their own tables.
#include "trireme/launch/nodes/coordinator.h"

#include <gtest/gtest.h>

#include "trireme/launch/flags/options.h"
#include "trireme/launch/free_port.h"
#include "trireme/launch/nodes/elastic_keys.h"
#include "trireme/net/address.h"
#include "trireme/net/secret.h"
#include "trireme/store/server/tcp_server.h"

namespace trireme::launch::coordinator_test {
namespace {

constexpr Duration kPatience = std::chrono::seconds(30);

struct Table {
  explicit Table(const net::Credentials& credentials)
      : server({.credentials = credentials}), store(server.local_store()) {}
  std::string address() { return server.endpoints().at(0).address.text(); }
  StoreServer server;
  std::unique_ptr<Store> store;
};

// Generation 0 was of a, which kept its store and has died, of k, which goes on, and of t, which
// has promised itself to k and does not come. Before k begins with a newcomer that t does not know,
// t must be unable to go on without it: k may die, and a promise to a dead launcher is void.
TEST(launch_coordinator, a_promise_that_counts_is_an_acceptance_before_the_generation_begins) {
  const net::Credentials credentials{"job", net::Secret(net::generate_secret())};
  Table job(credentials), of_t(credentials);
  const Standing promised{Standing::promised, 0, "a", "k"};
  of_t.store->set(elastic::kStanding, to_text(promised));

  Announcement last;
  last.job = "job";
  last.generation = {0,
                     {{"a", "host a", 1, "127.0.0.1:" + std::to_string(free_port())},
                      {"k", "host k", 1, job.address()},
                      {"t", "host t", 1, of_t.address()}},
                     "a"};
  const RunOptions options =
      parse_run_options({"--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:1"});
  const Member newcomer{"n", "host n", 1, "127.0.0.1:1"};
  job.store->set(elastic::came(1), to_text(last.generation.members[1]));
  job.store->set(elastic::came(2), to_text(newcomer));
  Coordinator coordinator(job.server.local_store(), options, credentials,
                          {"k", last, {last.generation}, 2});
  const Announcement next =
      read_announcement(job.store->get(elastic::announced(1), Deadline::after(kPatience)));
  ASSERT_EQ(next.generation.members.size(), 2u);
  EXPECT_EQ(standing_in(*of_t.store), promised) << "it is not told before it is needed";
  for (const char* token : {"k", "n"}) job.store->set(elastic::accepted(1, token), "1");
  job.store->get(elastic::begun(1), Deadline::after(kPatience));
  EXPECT_EQ(standing_in(*of_t.store), (Standing{Standing::free, 1, "k"}));
}

}  // namespace
}  // namespace trireme::launch::coordinator_test
