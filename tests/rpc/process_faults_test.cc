// SPDX-License-Identifier: Apache-2.0
// Calls between processes that are killed, stopped, or hostile, through shared memory and over TCP:
// each ends with an error within its deadline, and the server answers others all the while.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/rpc/lost_calls.h"
#include "tests/rpc/processes.h"
#include "tests/support/captured_log.h"
#include "tests/support/processes.h"
#include "trireme/rpc/agent/registry.h"
#include "trireme/rpc/wire/messages.h"

namespace trireme::rpc_process_faults_test {
namespace {

using namespace rpc_test;
using rpc::Began;
using rpc::CallLost;
using rpc::Future;

struct Service {
  explicit Service(const WorkerProcess::Parent& parent) : parent(parent) {}
  const WorkerProcess::Parent parent;
  std::atomic<int> runs{0};

  int echo(int x) { return x; }
  int counted(int x) {
    ++runs;
    return x;
  }
  int how_often() { return runs; }
  int hold(rpc::Call& call) {
    parent.tell("holding");
    parent.tell(waits_for_stop(call) ? "told to stop" : "never told");
    return 0;
  }
  int die() {
    ::kill(::getpid(), SIGKILL);
    return 0;
  }
  std::string text(const std::string& text) { return text; }
};
TRIREME_REMOTE(echo, &Service::echo);
TRIREME_REMOTE(counted, &Service::counted);
TRIREME_REMOTE(how_often, &Service::how_often);
TRIREME_REMOTE(hold, &Service::hold);
TRIREME_REMOTE(die, &Service::die);
TRIREME_REMOTE(text, &Service::text);

namespace elsewhere {  // another program's
TRIREME_REMOTE(echo, [](const std::string& a) { return a; });
TRIREME_REMOTE(unknown, [] {});
}  // namespace elsewhere

std::vector<rpc::Offer> all(const WorkerProcess::Parent& parent) {
  return {rpc::offer<echo, counted, how_often, hold, die, text>(std::make_shared<Service>(parent))};
}

/// A server of its own process; this one has a trainer, and another one that calls all the while.
class Three {
 public:
  explicit Three(const std::string& road) : road(road), server(road, "server0", all) {
    store.emplace();
    joined = server.join(*store);
    me.emplace(rpc::init(process_options(road, "trainer0", store->address())));
    peer.emplace(me->peer("server0"));
    honest.emplace(rpc::init(process_options(road, "honest", store->address())));
    calls_ = std::thread([this, other = honest->peer("server0")] {
      for (int i = 0; !over_; ++i) {
        try {
          if (other.sync<echo>(i) == i) ++answered;
        } catch (const CallLost&) {
          return;  // it was killed
        } catch (const std::exception& error) {
          wrong = error.what();
          return;
        }
      }
    });
  }
  ~Three() {
    over_ = true;
    server->kill();
    calls_.join();
  }
  /// The other trainer is answered, from now on.
  bool answers_others() {
    const int before = answered;
    return comes_about([&] { return answered > before + 5; }) && wrong.empty();
  }
  std::string address_of_server() {
    for (const auto& member : rpc::detail::Registry(store->connect(), 0).present())
      if (member.name == "server0") return member.addresses.at(0).second;
    return "";
  }
  std::shared_ptr<channel::Hub> hub(const channel::Peer& self,
                                    const std::string& secret = kJobSecret) {
    return (road == "tcp" ? tcp_road(secret) : local_road()).make(self, nullptr);
  }

  const std::string road;
  testing::CapturedLog log;
  WorkerProcess server;
  std::optional<SharedStore> store;
  bool joined = false;
  std::optional<rpc::Worker> me, honest;
  std::optional<rpc::Peer> peer;
  std::atomic<int> answered{0};
  std::string wrong;

 private:
  std::atomic<bool> over_{false};
  std::thread calls_;
};

/// True: none of its threads runs any more.
bool stop(const testing::Child& child) {
  child.send(SIGSTOP);
  return testing::eventually([&] {
    const std::string threads = "/proc/" + std::to_string(child.pid()) + "/task";
    for (const int thread : testing::numbers_in(threads))
      if (testing::state_of(thread) != 'T') return false;
    return true;
  });
}

void a_method_that_is_not_offered_or_is_another_is_refused_by_name(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  EXPECT_NE(text_of<UsageError>([&] {
              three.peer->sync<elsewhere::unknown>();
            }).find("worker 'server0' offers no method 'unknown'"),
            std::string::npos);
  EXPECT_NE(text_of<Mismatch>([&] {
              three.peer->sync<elsewhere::echo>("x");
            }).find("i32(i32) on worker 'server0' and str(str) here"),
            std::string::npos);
  EXPECT_TRUE(three.answers_others());
}

void a_worker_of_an_old_generation_is_refused_by_name(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  // It still has the address of a server that is of generation 0, and is itself of another one.
  const auto old = three.hub({"old", 7});
  struct Deaf final : channel::Receiver {
    void received(channel::Message) override {}
    void closed(const std::string&) override {}
  };
  const auto text = text_of<Mismatch>([&] {
    old->open(three.address_of_server(), {"server0", 7}, std::make_shared<Deaf>(),
              Deadline::after(kPlenty));
  });
  EXPECT_NE(text.find("generation 7"), text.npos) << text;
  EXPECT_NE(text.find("generation 0"), text.npos) << text;
  EXPECT_TRUE(three.answers_others());
}

void a_stopped_server_is_a_Timeout_and_answers_when_it_goes_on(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  EXPECT_EQ(three.peer->sync<counted>(1), 1);
  ASSERT_TRUE(stop(*three.server));
  const auto begin = Clock::now();
  auto future = three.peer->with(300ms).async<counted>(2);
  EXPECT_NE(text_of<Timeout>([&] { future.get(); }).find("has not answered in 300 ms"),
            std::string::npos);
  EXPECT_LT(Clock::now() - begin, 5s);
  three.server->send(SIGCONT);
  EXPECT_EQ(three.peer->sync<counted>(3), 3);
  EXPECT_TRUE(three.answers_others());
  EXPECT_LE(three.peer->sync<how_often>(), 3);
}

void a_server_killed_in_a_handler_had_begun_it(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  auto future = three.peer->async<hold>();
  ASSERT_EQ(three.server->hear(kPlenty), "holding");
  // It says that it began within milliseconds, before the answer to a later call.
  const auto begin = Clock::now();
  EXPECT_TRUE(
      comes_about([&] { return three.peer->sync<echo>(0) == 0 && Clock::now() - begin > 20ms; }));
  for (int i = 0; i < 2; ++i) three.peer->sync<echo>(0);
  three.server->kill();
  std::string text;
  EXPECT_EQ(began_of(std::move(future), &text), Began::yes);
  EXPECT_NE(text.find("worker 'server0' does not answer 'hold', which had begun"), text.npos)
      << text;
}

void a_handler_that_kills_its_server_loses_its_call_alone(const std::string& road) {
  WorkerProcess other(road, "server1", all);
  Three three(road);
  ASSERT_TRUE(three.joined && other.join(*three.store));
  const rpc::Peer safe = three.me->peer("server1");
  const auto begin = Clock::now();
  EXPECT_NE(began_of(three.peer->async<die>()), Began::no) << "it may have, and had";
  EXPECT_LT(Clock::now() - begin, 10s) << "no deadline is waited for";
  EXPECT_EQ(safe.sync<echo>(4), 4);
}

void a_server_killed_before_it_looked_may_have_begun(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  EXPECT_EQ(three.peer->sync<echo>(1), 1);
  ASSERT_TRUE(stop(*three.server));
  auto future = three.peer->async<echo>(2);
  three.server->kill();
  EXPECT_EQ(began_of(std::move(future)), Began::unknown);
  EXPECT_TRUE(comes_about([&] { return began_of(three.peer->async<echo>(3)) == Began::no; }))
      << "a call that is made later is known not to have";
}

void an_answer_that_has_come_is_not_lost_with_its_server(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  auto future = three.peer->async<echo>(7);
  EXPECT_TRUE(comes_about([&] { return future.ready(); }));
  three.server->kill();
  EXPECT_EQ(future.get(), 7);
}

void the_handlers_of_a_caller_that_is_killed_are_told_to_stop(const std::string& road) {
  testing::Child caller([road](const WorkerProcess::Parent& parent) {
    ::alarm(120);
    auto worker = rpc::init(process_options(road, "caller", parent.hear()));
    auto future = worker.peer("server0").async<hold>();
    parent.tell("called");
    parent.hear();
  });
  Three three(road);
  ASSERT_TRUE(three.joined);
  caller.tell(three.store->address());
  ASSERT_EQ(caller.hear(kPlenty), "called");
  ASSERT_EQ(three.server->hear(kPlenty), "holding");
  caller.kill();
  EXPECT_EQ(three.server->hear(kPlenty), "told to stop");
  EXPECT_TRUE(three.answers_others());
}

/// Says what it likes to the server, on a channel that was opened as any other.
class Hostile final : public channel::Receiver {
 public:
  void received(channel::Message message) override {
    if (!message.bytes.empty()) last_ = message.bytes[0];
  }
  void closed(const std::string&) override { closed_ = true; }
  /// False: the channel was closed by the server, or is after this.
  static bool attack(Three& three, const std::vector<channel::Message>& messages) {
    const auto hub = three.hub({"hostile", 0});
    const auto self = std::make_shared<Hostile>();
    const auto channel =
        hub->open(three.address_of_server(), {"server0", 0}, self, Deadline::after(kPlenty));
    for (const auto& message : messages) channel->send(message);
    const auto patience = Deadline::after(kPlenty);
    while (!self->closed_ && !patience.expired()) hub->serve(Deadline::after(10ms));
    return self->closed_;
  }

 private:
  std::atomic<bool> closed_{false};
  std::atomic<int> last_{0};
};

std::string hello() { return rpc::wire::encode(rpc::wire::Hello{"hostile", 1 << 20, {}}); }
std::string call(uint32_t method, uint64_t id, const std::string& arguments) {
  rpc::wire::Call call;
  call.method = method;
  std::string bytes = rpc::wire::encode(call);
  rpc::wire::complete(bytes, id, rpc::wire::kNoBudget);
  return bytes + arguments;
}
std::string number(uint64_t value, size_t bytes) {
  return {reinterpret_cast<const char*>(&value), bytes};
}

void messages_that_are_none_close_their_channel_and_no_other(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  const std::vector<std::vector<channel::Message>> attacks{
      {{"", {}}},
      {{std::string(100, '\0'), {}}},
      {{call(0, 0, number(1, 4)), {}}},                               // before a hello
      {{hello(), {}}, {hello(), {}}},                                 // twice
      {{hello(), {}}, {rpc::wire::encode(rpc::wire::Reply{9}), {}}},  // of a call never made
      {{rpc::wire::encode(rpc::wire::Hello{"honest", 3, {}}), {}}},   // as somebody else
      {{hello(), {}}, {rpc::wire::encode(rpc::wire::Began{1}), {{std::make_shared<int>(1), 4}}}}};
  for (size_t i = 0; i < attacks.size(); ++i) EXPECT_TRUE(Hostile::attack(three, attacks[i])) << i;
  EXPECT_TRUE(three.answers_others());
  EXPECT_EQ(three.peer->sync<echo>(1), 1);
}

void a_replayed_call_runs_once_and_ends_its_session(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  const std::string counted_once = call(1, 0, number(5, 4));  // `counted` is the second offer
  EXPECT_TRUE(Hostile::attack(three, {{hello(), {}}, {counted_once, {}}, {counted_once, {}}}));
  EXPECT_TRUE(comes_about([&] { return three.peer->sync<how_often>() <= 1; }));
  EXPECT_TRUE(three.answers_others());
  EXPECT_LE(three.peer->sync<how_often>(), 1);
}

void a_length_of_2_to_the_63_fails_its_call_without_memory(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  // `text` is the last offer; then a message that closes the channel, so that the attack has an
  // end.
  EXPECT_TRUE(Hostile::attack(
      three, {{hello(), {}}, {call(5, 0, number(uint64_t{1} << 63, 8)), {}}, {hello(), {}}}));
  EXPECT_TRUE(three.answers_others());
}

void random_bytes_harm_nobody_else(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  std::mt19937_64 random(17);
  for (int round = 0; round < 40; ++round) {
    std::vector<channel::Message> messages{{hello(), {}}};
    for (int i = 0; i < 10; ++i) {
      std::string bytes(random() % 80, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      if (!bytes.empty() && i % 2) bytes[0] = static_cast<char>(random() % 9);
      messages.push_back({bytes, {}});
    }
    messages.push_back({"", {}});
    EXPECT_TRUE(Hostile::attack(three, messages));
  }
  EXPECT_TRUE(three.answers_others());
  EXPECT_EQ(three.peer->sync<echo>(1), 1);
}

void who_does_not_know_the_jobs_secret_gets_no_channel(const std::string& road) {
  Three three(road);
  ASSERT_TRUE(three.joined);
  const auto hub = three.hub({"stranger", 0}, "another secret of 32 bytes, or so");
  std::string address = three.address_of_server();
  if (road == "local") {  // "local:NAME:KNOCK:ANSWER", where the knock is the secret
    const size_t at = address.find(':', address.find(':') + 1) + 1;
    address[at] = address[at] == '0' ? '1' : '0';
  }
  EXPECT_THROW(
      hub->open(address, {"server0", 0}, std::make_shared<Hostile>(), Deadline::after(kPlenty)),
      UsageError);
  EXPECT_TRUE(three.answers_others());
}

}  // namespace

#define RPC_FAULT(fact)                                   \
  TEST(rpc_process_faults_local, fact) { fact("local"); } \
  TEST(rpc_process_faults_tcp, fact) { fact("tcp"); }

RPC_FAULT(a_method_that_is_not_offered_or_is_another_is_refused_by_name)
RPC_FAULT(a_worker_of_an_old_generation_is_refused_by_name)
RPC_FAULT(a_stopped_server_is_a_Timeout_and_answers_when_it_goes_on)
RPC_FAULT(a_server_killed_in_a_handler_had_begun_it)
RPC_FAULT(a_handler_that_kills_its_server_loses_its_call_alone)
RPC_FAULT(a_server_killed_before_it_looked_may_have_begun)
RPC_FAULT(an_answer_that_has_come_is_not_lost_with_its_server)
RPC_FAULT(the_handlers_of_a_caller_that_is_killed_are_told_to_stop)
RPC_FAULT(messages_that_are_none_close_their_channel_and_no_other)
RPC_FAULT(a_replayed_call_runs_once_and_ends_its_session)
RPC_FAULT(a_length_of_2_to_the_63_fails_its_call_without_memory)
RPC_FAULT(random_bytes_harm_nobody_else)
RPC_FAULT(who_does_not_know_the_jobs_secret_gets_no_channel)

}  // namespace trireme::rpc_process_faults_test
