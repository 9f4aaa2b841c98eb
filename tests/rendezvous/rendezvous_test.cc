// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/rendezvous.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <future>
#include <map>

#include "tests/support/captured_log.h"
#include "tests/support/processes.h"
#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/net/connect.h"
#include "trireme/rendezvous/join.h"
#include "trireme/store/tcp_store.h"
#include "trireme/store/unix_store.h"

namespace rendezvous_test {

using namespace trireme;
using namespace std::chrono_literals;

namespace {

using trireme::testing::has;

Deadline soon() { return Deadline::after(10s); }
net::Getenv map_env(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    auto at = values.find(name);
    return at == values.end() ? std::nullopt : std::optional(at->second);
  };
}
const net::Getenv kNoEnv = map_env({});
const net::Getenv kInsecure = map_env({{"TRIREME_INSECURE", "1"}});

/// A world on this host that nobody else has.
RankEnv one_host(int world) {
  RankEnv env;
  env.world_size = env.local_world_size = world;
  env.job_id = net::random_token();
  return env;
}

/// A world that believes to be on several hosts, with eight ports that are most likely free.
RankEnv several_hosts(int world) {
  RankEnv env = one_host(world);
  env.local_world_size = 1;
  env.master_addr = "127.0.0.1";
  env.master_port = net::Listener::loopback().endpoint().address.port - 1;
  if (env.master_port > 65000) env.master_port -= 1000;
  return env;
}

RankEnv as(RankEnv env, int rank) {
  env.rank = rank;
  return env;
}

/// Every rank as a thread; each one's exception, as "Kind: text".
std::vector<std::string> run_ranks(int world, const std::function<void(int)>& body) {
  std::vector<std::future<std::string>> ranks;
  for (int r = 0; r < world; ++r)
    ranks.push_back(std::async(std::launch::async, [&body, r]() -> std::string {
      try {
        body(r);
      } catch (const Error& error) {
        return std::string(error.kind()) + ": " + error.what();
      }
      return "";
    }));
  std::vector<std::string> out;
  for (auto& rank : ranks) out.push_back(rank.get());
  return out;
}

std::vector<std::string> nothing(int world) { return std::vector<std::string>(world); }

class QuietLog {
 public:
  QuietLog() {
    set_log_sink([](LogLevel, std::string_view) {});
  }
  ~QuietLog() { set_log_sink({}); }
};

std::string secret_file(const PrivateFolder& folder, const std::string& name) {
  auto path = folder / name;
  write_file_atomic(path, net::generate_secret());
  ::chmod(path.c_str(), 0600);
  return path;
}

/// Everybody sees everybody, then leaves, in either order of the two objects.
void meet(const RankEnv& env, const net::Getenv& variables, const std::string& method = "env://") {
  auto errors = run_ranks(env.world_size, [&](int r) {
    ServerHandle server;
    auto store = open_store(as(env, r), method, soon(), server, variables);
    EXPECT_EQ(server.serving(), r == 0);
    store->set("from/" + std::to_string(r), "x");
    for (int peer = 0; peer < env.world_size; ++peer)
      store->get("from/" + std::to_string(peer), soon());
    EXPECT_EQ(member(*store, env.world_size - 1)->pid, ::getpid());
    if (r == 0 && env.world_size % 2) server = {};
  });
  EXPECT_EQ(errors, nothing(env.world_size));
}

}  // namespace

TEST(rendezvous_rendezvous, ranks_of_one_host_meet_without_a_secret) {
  for (int world : {2, 3, 8}) meet(one_host(world), kNoEnv);
}

TEST(rendezvous_rendezvous, who_waits_for_the_others_says_for_whom_after_three_seconds_and_once) {
  const trireme::testing::CapturedLog log;
  const auto env = one_host(4);
  auto errors = run_ranks(4, [&](int r) {
    // Rank 0 is alone for a while, and later with rank 2.
    const auto lines = [&] { return log.with("waits for").size(); };
    if (r == 2) {
      EXPECT_TRUE(trireme::testing::eventually([&] { return lines() == 1; }));
    }
    if (r == 1 || r == 3) std::this_thread::sleep_for(5s);
    ServerHandle server;
    open_store(as(env, r), "env://", Deadline::after(60s), server, kNoEnv);
  });
  EXPECT_EQ(errors, nothing(4));
  const auto said = log.with("waits for");
  ASSERT_EQ(said.size(), 1u);
  for (const char* part : {"rank 0 waits for ranks 1-3 of 4 to join at unix:@",
                           "(3 s so far; the "
                           "deadline is in "})
    EXPECT_NE(said[0].find(part), std::string::npos) << said[0];
}

TEST(rendezvous_rendezvous, a_rank_that_finds_no_store_says_where_it_looks_after_three_seconds) {
  const trireme::testing::CapturedLog log;
  const auto env = one_host(2);
  auto errors = run_ranks(2, [&](int r) {
    if (r == 0) {
      EXPECT_TRUE(trireme::testing::eventually([&] { return !log.lines().empty(); }));
    }
    ServerHandle server;
    open_store(as(env, r), "env://", Deadline::after(60s), server, kNoEnv);
  });
  EXPECT_EQ(errors, nothing(2));
  const auto said = log.with("does not answer yet, after 3 s");
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("the store at unix:@"), std::string::npos) << said[0];
}

TEST(rendezvous_rendezvous, a_world_of_one_needs_nobody) {
  ServerHandle server;
  auto store = open_store(RankEnv{}, "env://", soon(), server, kNoEnv);
  EXPECT_FALSE(server.serving());
  EXPECT_TRUE(server.close(Deadline::after(0s)));
  EXPECT_EQ(store->add("n", 1), 1);
}

TEST(rendezvous_rendezvous, ranks_of_several_hosts_meet_with_a_secret) {
  PrivateFolder folder;
  auto env = map_env({{"TRIREME_SECRET_FILE", secret_file(folder, "secret")}});
  for (int world : {2, 5}) meet(several_hosts(world), env);
}

TEST(rendezvous_rendezvous, several_hosts_without_a_secret_are_refused_with_three_ways_out) {
  auto env = several_hosts(2);
  auto errors = run_ranks(2, [&](int r) {
    ServerHandle server;
    open_store(as(env, r), "env://", soon(), server, kNoEnv);
  });
  for (auto& error : errors)
    for (auto part :
         {"UsageError", "~/.config/trireme/secret", "TRIREME_INSECURE=1", "LOCAL_WORLD_SIZE=2"})
      EXPECT_TRUE(has(error, part)) << error;
}

TEST(rendezvous_rendezvous, the_spoken_way_out_works) {
  QuietLog log;
  meet(several_hosts(2), kInsecure);
}

TEST(rendezvous_rendezvous, a_wrong_secret_ends_that_rank_and_rank_0_says_whom_it_refused) {
  QuietLog log;
  PrivateFolder folder;
  auto env = several_hosts(2);
  std::string files[] = {secret_file(folder, "a"), secret_file(folder, "b")};
  Clock::time_point ended[2];
  auto start = Clock::now();
  auto errors = run_ranks(2, [&](int r) {
    try {
      ServerHandle server;
      open_store(as(env, r), "env://", Deadline::after(r == 0 ? 800ms : 2s), server,
                 map_env({{"TRIREME_SECRET_FILE", files[r]}}));
    } catch (...) {
      ended[r] = Clock::now();
      throw;
    }
  });
  EXPECT_TRUE(has(errors[1], "UsageError") && has(errors[1], "wrong secret")) << errors[1];
  EXPECT_LT(ended[1] - start, 6s);
  EXPECT_TRUE(has(errors[0], "Timeout") && has(errors[0], "missing: rank 1") &&
              has(errors[0], "wrong secret"))
      << errors[0];
}

TEST(rendezvous_rendezvous, a_rank_that_never_comes_is_named_on_every_rank) {
  for (auto env : {one_host(6), several_hosts(6)}) {
    QuietLog log;
    auto start = Clock::now();
    auto errors = run_ranks(6, [&](int r) {
      if (r == 1 || r >= 4) return;
      ServerHandle server;
      open_store(as(env, r), "env://", Deadline::after(500ms), server, kInsecure);
    });
    EXPECT_LT(seconds_since(start), 4);
    for (int r : {0, 2, 3}) {
      EXPECT_TRUE(has(errors[r], "Timeout: ") && has(errors[r], "missing: ranks 1, 4-5"))
          << errors[r];
      EXPECT_TRUE(has(errors[r], "3 of 6 ranks joined within 0.")) << errors[r];
    }
  }
}

TEST(rendezvous_rendezvous, rank_0_that_never_comes_is_named) {
  QuietLog log;
  for (auto env : {one_host(2), several_hosts(2)}) {
    auto errors = run_ranks(2, [&](int r) {
      if (r == 0) return;
      ServerHandle server;
      open_store(as(env, r), "env://", Deadline::after(100ms), server, kInsecure);
    });
    EXPECT_TRUE(has(errors[1], "Timeout: ") && has(errors[1], "rank 0")) << errors[1];
  }
}

TEST(rendezvous_rendezvous, a_rank_started_twice_is_refused_and_the_first_goes_on) {
  auto env = one_host(2);
  std::atomic<int> refused{0};
  auto errors = run_ranks(3, [&](int i) {
    ServerHandle server;
    try {
      auto store = open_store(as(env, std::min(i, 1)), "env://", soon(), server, kNoEnv);
      store->get("second/refused", soon());
    } catch (const UsageError& error) {
      EXPECT_TRUE(has(error.what(), "rank 1") && has(error.what(), std::to_string(::getpid())))
          << error.what();
      ++refused;
      // Tells the others through a connection of its own.
      auto meeting = env.job_id + "/0@29500";
      TcpStore::connect(unix_store_endpoint(meeting), {meeting, {}}, soon())
          ->set("second/refused", "1");
    }
  });
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(errors, nothing(3));
}

TEST(rendezvous_rendezvous, ranks_that_disagree_on_the_world_are_told) {
  QuietLog log;
  auto env = one_host(2);
  auto errors = run_ranks(2, [&](int r) {
    auto mine = as(env, r);
    if (r == 1) mine.world_size = mine.local_world_size = 3;
    ServerHandle server;
    open_store(mine, "env://", Deadline::after(500ms), server, kNoEnv);
  });
  // Whoever sits down first is right.
  auto& told = errors[has(errors[0], "UsageError") ? 0 : 1];
  EXPECT_TRUE(has(told, "UsageError") && has(told, "world of 3") != has(told, "world of 2"))
      << told;
  EXPECT_TRUE(has(told, "one of 2") || has(told, "one of 3")) << told;
}

TEST(rendezvous_rendezvous, two_jobs_with_one_master_port_do_not_meet) {
  QuietLog log;
  auto a = several_hosts(2);
  auto b = a;
  b.job_id = net::random_token();
  auto errors = run_ranks(4, [&](int i) {
    auto& env = i < 2 ? a : b;
    ServerHandle server;
    auto store = open_store(as(env, i % 2), "env://", soon(), server, kInsecure);
    EXPECT_EQ(store->add("seen", 1) <= 2, true);
    store->set(env.job_id + std::to_string(i % 2), "");
    store->wait({env.job_id + "0", env.job_id + "1"}, soon());
    EXPECT_EQ(store->count_keys((i < 2 ? b : a).job_id), 0);
  });
  EXPECT_EQ(errors, nothing(4));
}

TEST(rendezvous_rendezvous, other_programs_behind_the_ports_are_passed_over) {
  QuietLog log;
  auto env = several_hosts(2);
  net::Listener silent(
      net::Endpoint::tcp({"127.0.0.1", static_cast<uint16_t>(env.master_port + 1)}));
  meet(env, kInsecure);
}

TEST(rendezvous_rendezvous, taken_ports_are_a_clear_error) {
  auto env = several_hosts(2);
  std::vector<net::Listener> taken;
  for (int i = 1; i <= 8; ++i)
    if (auto one = net::Listener::if_free(
            net::Endpoint::tcp({"127.0.0.1", static_cast<uint16_t>(env.master_port + i)})))
      taken.push_back(std::move(*one));
  ServerHandle server;
  try {
    open_store(env, "env://", soon(), server, kInsecure);
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_TRUE(has(error.what(), "port in use") && has(error.what(), "MASTER_PORT"))
        << error.what();
    EXPECT_TRUE(has(error.what(), std::to_string(env.master_port + 1))) << error.what();
  }
}

TEST(rendezvous_rendezvous, tcp_names_the_port_itself) {
  QuietLog log;
  auto env = several_hosts(2);
  auto port = net::Listener::loopback().endpoint().address.port;
  auto method = "tcp://127.0.0.1:" + std::to_string(port);
  meet(env, kInsecure, method);
  net::Listener taken(net::Endpoint::tcp({"127.0.0.1", port}));
  ServerHandle server;
  try {
    open_store(env, method, soon(), server, kInsecure);
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_TRUE(has(error.what(), "port in use") && has(error.what(), std::to_string(port)))
        << error.what();
  }
}

TEST(rendezvous_rendezvous, tcp_at_loopback_means_one_host_and_no_secret) {
  auto env = one_host(2);
  env.local_world_size = 0;  // as a caller gives it who only knows rank and size
  meet(env, kNoEnv, "tcp://localhost:29533");
}

TEST(rendezvous_rendezvous, other_methods_are_refused_by_name) {
  ServerHandle server;
  auto env = one_host(2);
  for (std::string method : {"file://x", "file:///x/", "file:///x?rank=0", "tcp://nohost",
                             "tcp://h:1?rank=0", "tcp://h:0", "http://h:1"}) {
    try {
      open_store(env, method, soon(), server, kNoEnv);
      ADD_FAILURE() << method;
    } catch (const UsageError& error) {
      EXPECT_TRUE(has(error.what(), method.substr(method.find("//") + 2))) << error.what();
    }
  }
  EXPECT_THROW(open_store(as(env, 2), "env://", soon(), server, kNoEnv), UsageError);
  env = several_hosts(2);
  env.master_addr.clear();
  try {
    open_store(env, "env://", soon(), server, kInsecure);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_TRUE(has(error.what(), "MASTER_ADDR")) << error.what();
  }
}

TEST(rendezvous_rendezvous, a_launcher_that_serves_is_joined_again_and_again) {
  PrivateFolder folder;
  auto secret = secret_file(folder, "secret");
  auto variables = map_env({{"TRIREME_SECRET_FILE", secret}});
  auto env = one_host(3);
  StoreServer tcp(StoreServer::Options{{env.job_id, net::read_secret_file(secret)}});
  StoreServer same_host(StoreServer::Options{{env.job_id, {}}},
                        unix_store_endpoint(net::random_token()));
  for (auto* launcher : {&tcp, &same_host}) {
    env.store_endpoint = launcher->endpoints()[0].text();
    for (int attempt = 0; attempt < 2; ++attempt) {
      env.attempt = attempt;
      auto errors = run_ranks(3, [&](int r) {
        for (int group = 0; group < 3;
             ++group) {  // no barrier between leaving one and joining the next
          ServerHandle server;
          auto store = open_store(as(env, r), "env://", soon(), server, variables);
          EXPECT_FALSE(server.serving());
          EXPECT_LE(store->add("members", 1), 3);
        }
      });
      EXPECT_EQ(errors, nothing(3));
    }
    EXPECT_TRUE(launcher->wait_until_clients_left(soon()));
  }
  env.store_endpoint = tcp.endpoints()[0].text();
  ServerHandle server;
  EXPECT_THROW(open_store(env, "env://", soon(), server, kNoEnv), UsageError);
}

TEST(rendezvous_rendezvous, groups_follow_each_other_without_a_launcher_too) {
  QuietLog log;
  for (auto env : {one_host(3), several_hosts(3)}) {
    auto errors = run_ranks(3, [&](int r) {
      for (int group = 0; group < 4; ++group) {
        ServerHandle server;
        auto store = open_store(as(env, r), "env://", soon(), server, kInsecure);
        EXPECT_LE(store->add("members", 1), 3);
      }
    });
    EXPECT_EQ(errors, nothing(3));
  }
}

TEST(rendezvous_rendezvous, the_store_closes_last) {
  auto env = one_host(2);
  std::promise<void> rank_0_closes;
  auto errors = run_ranks(2, [&](int r) {
    ServerHandle server;
    auto store = open_store(as(env, r), "env://", soon(), server, kNoEnv);
    if (r == 0) {
      auto look = store->clone(soon());
      store.reset();
      EXPECT_FALSE(has_left(*look, 1));
      rank_0_closes.set_value();
      EXPECT_TRUE(server.close(soon()));
      EXPECT_TRUE(has_left(*look, 1));
    } else {
      rank_0_closes.get_future().wait();
      store->get("left/0", soon());
      for (int i = 0; i < 50; ++i) store->add("still_served", 1);
    }
  });
  EXPECT_EQ(errors, nothing(2));
}

TEST(rendezvous_rendezvous, a_rank_that_does_not_leave_is_not_waited_for_beyond_the_deadline) {
  QuietLog log;
  auto env = one_host(2);
  std::promise<void> closed;
  auto errors = run_ranks(2, [&](int r) {
    ServerHandle server;
    auto store = open_store(as(env, r), "env://", soon(), server, kNoEnv);
    if (r == 0) {
      auto start = Clock::now();
      EXPECT_FALSE(server.close(Deadline::after(50ms)));
      EXPECT_LT(seconds_since(start), 3);
      closed.set_value();
    } else {
      closed.get_future().wait();
      EXPECT_THROW(store->set("k", "v"), PeerLost);
    }
  });
  EXPECT_EQ(errors, nothing(2));
}

TEST(rendezvous_rendezvous,
     processes_meet_by_their_environment_and_a_killed_one_is_not_waited_for) {
  if (std::getenv("TRIREME_TEST_CHILD")) {  // this same test, started below as rank 1
    ServerHandle server;
    auto store = open_store(read_rank_env(), "env://", soon(), server);
    store->set("child", "is here");
    store->get("leave", soon());
    return;
  }
  for (bool kill : {false, true}) {
    auto env = one_host(2);
    std::vector<std::string> variables = {"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
                                          "TORCHELASTIC_RUN_ID=" + env.job_id,
                                          "TRIREME_TEST_CHILD=1"};
    std::vector<char*> envp;
    for (auto& variable : variables) envp.push_back(variable.data());
    envp.push_back(nullptr);
    std::string argv0 = "child", filter = "--gtest_filter=rendezvous_rendezvous.processes_meet_*";
    char* argv[] = {argv0.data(), filter.data(), nullptr};
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    ASSERT_EQ(::posix_spawn(&child, "/proc/self/exe", &quiet, nullptr, argv, envp.data()), 0);
    posix_spawn_file_actions_destroy(&quiet);

    ServerHandle server;
    std::unique_ptr<Store> store;
    EXPECT_NO_THROW(store = open_store(env, "env://", soon(), server, kNoEnv));
    if (store) {
      EXPECT_EQ(store->get("child", soon()), "is here");
      EXPECT_EQ(member(*store, 1)->pid, child);
      if (kill)
        ::kill(child, SIGKILL);
      else
        store->set("leave", "");
      EXPECT_TRUE(server.close(soon()));
      EXPECT_EQ(has_left(*store, 1), !kill);
    } else {
      ::kill(child, SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (kill)
      EXPECT_TRUE(WIFSIGNALED(status)) << status;
    else
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

}  // namespace rendezvous_test
