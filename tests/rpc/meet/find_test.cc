// SPDX-License-Identifier: Apache-2.0
// How workers find each other where nobody gives them a store and roads.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/rpc/workers.h"
#include "tests/support/captured_log.h"
#include "trireme/base/file.h"
#include "trireme/net/connect.h"
#include "trireme/net/listener.h"
#include "trireme/rpc/agent/agent.h"
#include "trireme/rpc/meet/meet.h"
#include "trireme/store/server/tcp_server.h"

namespace trireme::rpc_meet_find_test {
namespace {

using namespace rpc_test;
using Variables = std::map<std::string, std::string>;

TRIREME_REMOTE(squared, [](int x) { return x * x; });

net::Getenv from(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  };
}

/// What init() would find in a process with these variables.
rpc::detail::Met met(const std::string& name, const Variables& variables,
                     Duration deadline = kPlenty) {
  rpc::Options options;
  options.name = name;
  options.offers = {rpc::offer<squared>()};
  options.deadline = deadline;
  options.threads = 2;
  return rpc::detail::meet(std::move(options), from(variables));
}
rpc::Worker start(const std::string& name, const Variables& variables) {
  return rpc::init(met(name, variables).options);
}

void leave(const std::vector<rpc::Worker>& workers) {
  for (const auto& worker : workers) worker.shutdown({.graceful = false, .deadline = kPlenty});
}

/// A world of three on one host that nobody else has.
Variables rank_of_host(int rank, const std::string& job) {
  return {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", "3"},
          {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", "3"},
          {"TORCHELASTIC_RUN_ID", job},         {"MASTER_PORT", "29500"}};
}

/// Two ranks that believe to be on two hosts, with ports that are most likely free.
Variables rank_of_hosts(int rank, const std::string& job, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", "2"},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", "1"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"TORCHELASTIC_RUN_ID", job}};
}
int free_ports() {
  const int port = net::Listener::loopback().endpoint().address.port - 1;
  return port > 65000 ? port - 1000 : port;
}

class SecretFile {
 public:
  explicit SecretFile(const std::string& secret) {
    write_file_atomic(path(), secret);
    ::chmod(path().c_str(), 0600);
  }
  std::string path() const { return folder_ / "secret"; }

 private:
  PrivateFolder folder_{"trireme-test"};
};

/// A launcher's store, and what it says to its workers.
class Launcher {
 public:
  Launcher() {
    StoreServer::Options options;
    options.credentials = {"job", net::Secret(secret_)};
    server = std::make_unique<StoreServer>(options);
  }
  Variables worker(int rank, int attempt = 0) const {
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", "4"},
            {"LOCAL_RANK", std::to_string(rank)},
            {"LOCAL_WORLD_SIZE", "4"},
            {"TORCHELASTIC_RUN_ID", "job"},
            {"TRIREME_ATTEMPT", std::to_string(attempt)},
            {"TRIREME_STORE", server->endpoints().at(0).address.text()},
            {"TRIREME_SECRET_FILE", file_.path()}};
  }
  std::unique_ptr<StoreServer> server;

 private:
  const std::string secret_ = net::generate_secret();
  SecretFile file_{secret_};
};

}  // namespace

TEST(rpc_meet_find, workers_of_a_process_that_no_launcher_started_find_each_other) {
  auto a = start("a", {}), b = start("b", {});
  EXPECT_EQ(a.peer("b").sync<squared>(3), 9);
  EXPECT_EQ(b.workers(), (std::vector<std::string>{"a", "b"}));
  EXPECT_THROW(a.peer(0, {.deadline = 20ms}), Timeout) << "nobody said that it is rank 0";
  leave({a, b});
}

TEST(rpc_meet_find, what_one_test_left_in_this_process_is_not_found_by_the_next) {
  {
    auto a = start("a", {});
    leave({a});
  }
  auto again = start("a", {});
  EXPECT_EQ(again.workers(), std::vector<std::string>{"a"});
  leave({again});
}

TEST(rpc_meet_find, a_worker_without_a_name_takes_that_of_its_role) {
  EXPECT_EQ(rpc::detail::name_of_process(from({{"TRIREME_ROLE", "server"},
                                               {"TRIREME_ROLE_RANK", "1"},
                                               {"ROLE_NAME", "other"},
                                               {"ROLE_RANK", "5"}})),
            "server1");
  EXPECT_EQ(rpc::detail::name_of_process(from({{"ROLE_NAME", "trainer"}, {"ROLE_RANK", "2"}})),
            "trainer2");
  EXPECT_EQ(rpc::detail::name_of_process(from({{"ROLE_NAME", ""}, {"ROLE_RANK", "2"}})), "");
  auto worker = start("", {{"TRIREME_ROLE", "server"}, {"TRIREME_ROLE_RANK", "0"}});
  EXPECT_EQ(worker.name(), "server0");
  leave({worker});
  const auto text = text_of<UsageError>([] { met("", {}); });
  EXPECT_NE(text.find("--role NAME=COUNT"), text.npos) << text;
}

TEST(rpc_meet_find, ranks_of_one_host_find_each_other_whoever_comes_first) {
  const std::string job = net::random_token();
  std::vector<std::unique_ptr<rpc::Worker>> workers(3);
  std::vector<std::thread> threads;
  for (const int rank : {2, 1, 0})  // rank 0, which serves, comes last
    threads.emplace_back([&, rank] {
      auto found = met("worker" + std::to_string(rank), rank_of_host(rank, job));
      EXPECT_EQ(found.options.rank, rank);
      EXPECT_TRUE(found.process_rank);
      EXPECT_EQ(found.options.roads.size(), 1u) << "shared memory is enough";
      workers[static_cast<size_t>(rank)] =
          std::make_unique<rpc::Worker>(rpc::init(std::move(found.options)));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(workers[2]->peer(0).sync<squared>(4), 16);
  EXPECT_EQ(workers[0]->peer("worker1").sync<squared>(5), 25);
  EXPECT_EQ(workers[1]->workers().size(), 3u);
  for (auto& worker : workers) leave({*worker});
  workers[1].reset();
  workers[2].reset();
}

TEST(rpc_meet_find, a_second_worker_of_a_process_goes_without_the_rank_that_the_first_one_has) {
  const Launcher launcher;
  const auto init = [&](const std::string& name, int rank) {
    auto found = met(name, launcher.worker(rank));
    auto agent = std::make_shared<rpc::detail::Agent>(std::move(found.options), found.process_rank);
    agent->start();
    return agent;
  };
  const auto first = init("first", 1), second = init("second", 1);
  EXPECT_EQ(first->line(1, Deadline::after(kPlenty))->peer(), "first");
  EXPECT_EQ(second->line("first", Deadline::after(kPlenty))->peer(), "first");
  auto found = met("third", launcher.worker(1));  // who says the rank itself is refused it
  EXPECT_NE(text_of<UsageError>([&] { rpc::init(found.options); }).find("rank 1 is taken"),
            std::string::npos);
}

TEST(rpc_meet_find,
     workers_of_a_launcher_meet_in_its_store_and_those_of_another_attempt_are_not_seen) {
  const Launcher launcher;
  auto server = start("server0", launcher.worker(0)),
       trainer = start("trainer0", launcher.worker(1));
  EXPECT_EQ(trainer.peer("server0").sync<squared>(6), 36);
  auto later = met("server0", launcher.worker(0, 1));
  EXPECT_EQ(later.options.generation, 1u);
  auto again = rpc::init(std::move(later.options));
  EXPECT_EQ(again.workers(), std::vector<std::string>{"server0"});
  EXPECT_EQ(trainer.workers().size(), 2u);
  leave({server, trainer, again});
}

TEST(rpc_meet_find, ranks_of_several_hosts_have_shared_memory_and_TCP_and_either_carries_calls) {
  testing::CapturedLog log;
  const std::string job = net::random_token();
  const SecretFile secret(net::generate_secret());
  const int port = free_ports();
  std::vector<std::unique_ptr<rpc::Worker>> workers(2);
  std::vector<std::thread> threads;
  for (const int rank : {1, 0})
    threads.emplace_back([&, rank] {
      auto variables = rank_of_hosts(rank, job, port);
      variables["TRIREME_SECRET_FILE"] = secret.path();
      auto found = met("worker" + std::to_string(rank), variables);
      ASSERT_EQ(found.options.roads.size(), 2u);
      EXPECT_EQ(found.options.roads[0].kind, "local");
      EXPECT_EQ(found.options.roads[1].kind, "tcp");
      // Rank 1 is as one on another host: no shared memory leads from it to rank 0.
      if (rank == 1) found.options.roads.erase(found.options.roads.begin());
      workers[static_cast<size_t>(rank)] =
          std::make_unique<rpc::Worker>(rpc::init(std::move(found.options)));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(workers[1]->peer("worker0").sync<squared>(7), 49);
  EXPECT_EQ(workers[0]->peer("worker1").sync<squared>(8), 64);
  leave({*workers[0], *workers[1]});
  workers[1].reset();
}

TEST(rpc_meet_find,
     without_a_secret_workers_of_several_hosts_are_refused_before_anything_is_opened) {
  auto variables = rank_of_hosts(0, net::random_token(), free_ports());
  variables["HOME"] = "/nowhere";
  const auto text = text_of<UsageError>([&] { met("worker0", variables); });
  EXPECT_NE(text.find("takes a secret"), text.npos) << text;
}

TEST(rpc_meet_find, a_wrong_secret_is_refused_and_harms_no_worker) {
  testing::CapturedLog log;
  const Launcher launcher;
  auto server = start("server0", launcher.worker(0)),
       trainer = start("trainer0", launcher.worker(1));
  const SecretFile wrong(net::generate_secret());
  auto variables = launcher.worker(2);
  variables["TRIREME_SECRET_FILE"] = wrong.path();
  const auto text = text_of<UsageError>([&] { met("stranger", variables); });
  EXPECT_NE(text.find("secret"), text.npos) << text;
  EXPECT_EQ(trainer.peer("server0").sync<squared>(2), 4);
  leave({server, trainer});
}

TEST(rpc_meet_find, a_store_that_is_not_there_is_a_Timeout_at_the_deadline) {
  const auto begin = Clock::now();
  EXPECT_THROW(met("worker1", rank_of_host(1, net::random_token()), 100ms), Timeout);
  EXPECT_LT(Clock::now() - begin, 10s);
}

TEST(rpc_meet_find, variables_that_contradict_each_other_are_refused) {
  const auto text = text_of<UsageError>([] { met("a", {{"RANK", "4"}, {"WORLD_SIZE", "2"}}); });
  EXPECT_NE(text.find("RANK=4"), text.npos) << text;
  EXPECT_THROW(met("a", {{"RANK", "1"}}), UsageError);
}

TEST(rpc_meet_find, what_a_worker_is_given_is_used_and_the_rest_is_found) {
  Job job;
  auto options = job.options("given");
  options.roads.clear();
  auto found = rpc::detail::meet(options, from({}));
  EXPECT_EQ(found.options.store, options.store);
  ASSERT_EQ(found.options.roads.size(), 1u);
  EXPECT_EQ(found.options.roads[0].kind, "local");
  EXPECT_EQ(found.options.rank, -1);
  options = job.options("given");
  options.store = nullptr;
  found = rpc::detail::meet(options, from({}));
  EXPECT_NE(found.options.store, nullptr);
  EXPECT_EQ(found.options.roads[0].kind, "memory");
}

}  // namespace trireme::rpc_meet_find_test
