// SPDX-License-Identifier: Apache-2.0
// References between four processes that make, pass on and drop them, while one after the other is
// killed: at last no object, no hold and no thread is left. TRIREME_SOAK=1: for a minute;
// TRIREME_SOAK_MINUTES says for how many.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/workers.h"
#include "tests/support/processes.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/channel/local/hub.h"
#include "trireme/net/secret.h"
#include "trireme/rpc/object/rref.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/tcp_store.h"

namespace trireme::rpc_traffic_test {
namespace {

using namespace rpc_test;
using rpc::RRef;

const net::Credentials kJob{"job", {}};
std::atomic<int64_t> alive{0};

struct Box {
  explicit Box(int64_t value) : value_(value), ballast_(4096, 'x') { ++alive; }
  ~Box() { --alive; }
  int64_t get() const { return value_; }

 private:
  int64_t value_;
  std::string ballast_;
};
TRIREME_REMOTE_CLASS(Box, int64_t);
TRIREME_REMOTE(get_box, &Box::get);

/// References that others have left here.
class Shelf {
 public:
  void put(const std::vector<RRef<Box>>& boxes) {
    std::lock_guard lock(mutex_);
    for (const auto& box : boxes)
      if (!closed_) boxes_.push_back(box);
    if (boxes_.size() > 64) boxes_.erase(boxes_.begin(), boxes_.begin() + 32);
  }
  std::vector<RRef<Box>> take(int64_t at) {
    std::lock_guard lock(mutex_);
    if (boxes_.empty()) return {};
    return {boxes_[static_cast<size_t>(at) % boxes_.size()]};
  }
  void close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    boxes_.clear();
  }

 private:
  std::mutex mutex_;
  bool closed_ = false;
  std::vector<RRef<Box>> boxes_;
};
TRIREME_REMOTE(put_boxes, &Shelf::put);
TRIREME_REMOTE(take_box, &Shelf::take);

rpc::Worker start(const std::string& name, const std::string& store,
                  const std::shared_ptr<Shelf>& shelf) {
  rpc::Options options;
  options.name = name;
  options.store = TcpStore::connect(net::Endpoint::parse(store), kJob, Deadline::after(kPlenty));
  options.roads = {{"local", [](const channel::Peer& self, channel::Accept accept) {
                      return std::shared_ptr<channel::Hub>(
                          channel::local_hub({.self = self, .accept = std::move(accept)}));
                    }}};
  options.offers = {rpc::offer_objects<Box, get_box>(), rpc::offer<put_boxes, take_box>(shelf)};
  options.threads = 2;
  options.most_threads = 6;
  options.deadline = 5s;
  // The one that had the name may not be known to be dead yet.
  for (const auto deadline = Deadline::after(kPlenty);;) {
    try {
      return rpc::init(options);
    } catch (const UsageError&) {
      if (deadline.expired()) throw;
      options.store =
          TcpStore::connect(net::Endpoint::parse(store), kJob, Deadline::after(kPlenty));
    }
  }
}

/// What goes wrong is what a death may make of a call.
int64_t traffic(const rpc::Worker& me, uint64_t seed, const std::function<bool()>& goes_on) {
  std::mt19937_64 random(seed);
  const auto draw = [&](uint64_t below) { return random() % below; };
  std::vector<RRef<Box>> mine;
  int64_t done = 0;
  while (goes_on()) {
    try {
      const std::string to = "w" + std::to_string(draw(4));
      const auto peer = me.peer(to, {.deadline = 2s});
      const auto what = draw(10);
      if (what < 3 || mine.empty()) {
        mine.push_back(peer.remote<Box>(static_cast<int64_t>(draw(1000))));
      } else if (what < 6) {
        peer.sync<put_boxes>(std::vector<RRef<Box>>{mine[draw(mine.size())], mine.back()});
      } else if (what < 8) {
        for (auto& box : peer.sync<take_box>(static_cast<int64_t>(draw(64)))) mine.push_back(box);
      } else {
        mine[draw(mine.size())].with(2s).sync<get_box>();
      }
      ++done;
    } catch (const PeerLost&) {
    } catch (const Timeout&) {
    } catch (const UsageError&) {  // its object is freed: who passed it on was killed
    }
    if (mine.size() > 30 || (!mine.empty() && draw(3) == 0))
      mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(draw(mine.size())));
  }
  return done;
}

/// "": nothing is left.
std::string left_at(const rpc::Worker& me) {
  std::string text;
  comes_about([&] {
    const auto now = rpc::detail::Access::objects(me)->counts();
    text = now.owned + now.held + now.passed == 0 && alive == 0
               ? ""
               : fmt::format("{} owned, {} held, {} passed, {} alive", now.owned, now.held,
                             now.passed, alive.load());
    return text.empty();
  });
  return text;
}

pid_t start_process(int number, const std::string& store, uint64_t seed) {
  const std::string variables[] = {"TRIREME_TRAFFIC_NAME=w" + std::to_string(number),
                                   "TRIREME_TRAFFIC_STORE=" + store,
                                   "TRIREME_TRAFFIC_SEED=" + std::to_string(seed)};
  std::vector<const char*> environment,
      arguments = {"traffic", "--gtest_filter=*DISABLED_one_of_its_processes",
                   "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr};
  for (char** entry = environ; *entry; ++entry) environment.push_back(*entry);
  for (const auto& variable : variables) environment.push_back(variable.c_str());
  environment.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::execve("/proc/self/exe", const_cast<char**>(arguments.data()),
             const_cast<char**>(environment.data()));
    ::_exit(127);
  }
  return pid;
}

Duration how_long() {
  if (!std::getenv("TRIREME_SOAK")) return 5s;
  const char* minutes = std::getenv("TRIREME_SOAK_MINUTES");
  return std::chrono::minutes(minutes ? std::atoi(minutes) : 1);
}

}  // namespace

TEST(rpc_object_traffic, DISABLED_one_of_its_processes) {
  const char* const name = std::getenv("TRIREME_TRAFFIC_NAME");
  if (!name) GTEST_SKIP() << "it is started by the test below";
  const std::string where = std::getenv("TRIREME_TRAFFIC_STORE");
  const auto store = TcpStore::connect(net::Endpoint::parse(where), kJob, Deadline::after(kPlenty));
  const auto shelf = std::make_shared<Shelf>();
  auto me = start(name, where, shelf);
  store->add("started", 1);
  traffic(me, std::stoull(std::getenv("TRIREME_TRAFFIC_SEED")),
          [&] { return !store->try_get("stop"); });
  shelf->close();
  EXPECT_EQ(left_at(me), "");
  store->add("clean", 1);
  store->wait({"leave"}, Deadline::after(kPlenty));
  EXPECT_NO_THROW(me.shutdown({.graceful = false, .deadline = kPlenty}));
}

TEST(rpc_object_traffic, leaves_nothing_behind_whoever_is_killed) {
  std::thread([] {}).join();  // ThreadSanitizer starts one of its own with the first
  const size_t threads_before = testing::numbers_in("/proc/self/task").size();
  uint64_t kills = 0;
  int64_t done = 0;
  {
    StoreServer server(StoreServer::Options{kJob}, net::Endpoint::tcp({"127.0.0.1", 0}));
    const std::string where = server.endpoints()[0].text();
    const auto store = server.local_store();
    const auto shelf = std::make_shared<Shelf>();
    auto me = start("w0", where, shelf);
    std::mt19937_64 random(5);
    std::vector<pid_t> processes;
    int64_t started = 0;
    for (int i = 1; i < 4; ++i, ++started) processes.push_back(start_process(i, where, random()));
    const auto all_started = [&] {
      const auto count = store->try_get("started");
      return count && std::stoll(*count) >= started;
    };
    ASSERT_TRUE(comes_about(all_started));
    const auto end = Deadline::after(how_long());
    auto next_kill = Deadline::after(700ms);
    done = traffic(me, 1, [&] {
      if (next_kill.expired() && all_started() && !end.expired()) {
        const size_t who = random() % processes.size();
        ::kill(processes[who], SIGKILL);
        ::waitpid(processes[who], nullptr, 0);
        processes[who] = start_process(static_cast<int>(who) + 1, where, random());
        ++started, ++kills;
        next_kill = Deadline::after(std::chrono::milliseconds(300 + random() % 700));
      }
      return !end.expired();
    });
    ASSERT_TRUE(comes_about(all_started));
    store->set("stop", "now");
    shelf->close();
    EXPECT_EQ(left_at(me), "");
    EXPECT_TRUE(comes_about([&] {
      const auto clean = store->try_get("clean");
      return clean && *clean == "3";
    }));
    store->set("leave", "now");
    for (const pid_t pid : processes) {
      int status = -1;
      ::waitpid(pid, &status, 0);
      EXPECT_EQ(status, 0);
    }
    me.shutdown({.graceful = false, .deadline = kPlenty});
  }
  EXPECT_GE(kills, 2u);
  EXPECT_GT(done, 50);
  EXPECT_TRUE(
      comes_about([&] { return testing::numbers_in("/proc/self/task").size() == threads_before; }));
  log_info("rpc_object_traffic: {} operations of one process, {} kills", done, kills);
}

}  // namespace trireme::rpc_traffic_test
