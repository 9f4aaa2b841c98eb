// SPDX-License-Identifier: Apache-2.0
// What goes wrong, by whoever's doing: each is an error by the deadline, and the others go on.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/rpc/lost_calls.h"
#include "tests/rpc/workers.h"
#include "tests/support/captured_log.h"

namespace trireme::rpc_faults_test {
namespace {

using namespace rpc_test;
using rpc::Began;
using rpc::CallLost;
using rpc::Future;

struct Strange {};  // no std::exception

struct Service {
  Gate gate;
  std::atomic<int> runs{0}, stopped{0};

  int echo(int x) {
    ++runs;
    return x;
  }
  int slow(rpc::Call& call, int x) {
    ++runs;
    gate.wait();
    stopped += call.stop_token().stop_requested();
    return x;
  }
  int until_stopped(rpc::Call& call) {
    ++runs;
    stopped += waits_for_stop(call);
    return 0;
  }
  void fails(const std::string& how) {
    if (how == "usage") throw UsageError("wrong use", {2, 3, "op", 4});
    if (how == "mismatch") throw Mismatch("they differ");
    if (how == "peer") throw PeerLost("rank 3 is gone");
    if (how == "timeout") throw Timeout("too late");
    if (how == "aborted") throw Aborted("stopped");
    if (how == "resource") throw ResourceError("disk full");
    if (how == "numeric") throw NumericError("nan");
    if (how == "corrupt") throw Corrupt("bad bytes");
    if (how == "range") throw std::out_of_range("3 is too far");
    if (how == "strange") throw Strange();
    if (how == "number") throw 42;
  }
  std::string swallow(const std::string& text) { return text; }
};

TRIREME_REMOTE(echo, &Service::echo);
TRIREME_REMOTE(slow, &Service::slow);
TRIREME_REMOTE(until_stopped, &Service::until_stopped);
TRIREME_REMOTE(fails, &Service::fails);
TRIREME_REMOTE(swallow, &Service::swallow);

class rpc_faults : public ::testing::Test {
 protected:
  ~rpc_faults() override { service->gate.open(); }

  Job job;
  std::shared_ptr<Service> service = std::make_shared<Service>();
  rpc::Worker server =
      job.start("server0", {rpc::offer<echo, slow, until_stopped, fails, swallow>(service)});
  rpc::Worker me = job.start("trainer0", {rpc::offer<echo>(std::make_shared<Service>())});
  rpc::Peer peer = me.peer("server0");

  Began began_of(Future<int> future) { return rpc_test::began_of(std::move(future), &text); }
  /// Calls over a session that works, once the end of the last one has been noticed.
  bool echoes(const rpc::Worker& worker) {
    return comes_about([&] {
      try {
        return worker.peer("server0").sync<echo>(9) == 9;
      } catch (const CallLost&) {
        return false;
      }
    });
  }
  std::string text;
};

}  // namespace

TEST_F(rpc_faults, our_errors_keep_their_class_and_what_they_know) {
  const auto thrown = [&](const char* how) { peer.sync<fails>(how); };
  EXPECT_NE(
      text_of<UsageError>([&] { thrown("usage"); }).find("wrong use ('fails' on worker 'server0')"),
      std::string::npos);
  EXPECT_NE(text_of<Mismatch>([&] { thrown("mismatch"); }).find("they differ"), std::string::npos);
  EXPECT_NE(text_of<PeerLost>([&] { thrown("peer"); }).find("rank 3 is gone"), std::string::npos);
  EXPECT_NE(text_of<Timeout>([&] { thrown("timeout"); }).find("too late"), std::string::npos);
  EXPECT_NE(text_of<Aborted>([&] { thrown("aborted"); }).find("stopped"), std::string::npos);
  EXPECT_NE(text_of<ResourceError>([&] { thrown("resource"); }).find("disk full"),
            std::string::npos);
  EXPECT_NE(text_of<NumericError>([&] { thrown("numeric"); }).find("nan"), std::string::npos);
  EXPECT_NE(text_of<Corrupt>([&] { thrown("corrupt"); }).find("bad bytes"), std::string::npos);
  try {
    thrown("usage");
  } catch (const UsageError& error) {
    EXPECT_EQ(error.rank(), 2);
    EXPECT_EQ(error.peer(), 3);
    EXPECT_EQ(error.op(), "op");
    EXPECT_EQ(error.seq(), 4);
  }
  // A handler that lost its own peer is no lost call.
  EXPECT_NE(text_of<CallLost>([&] { thrown("peer"); }).find("another class"), std::string::npos);
}

TEST_F(rpc_faults, what_we_do_not_know_becomes_a_RemoteError) {
  try {
    peer.sync<fails>("range");
    FAIL() << "nothing was thrown";
  } catch (const rpc::RemoteError& error) {
    EXPECT_EQ(error.type(), "std::out_of_range");
    EXPECT_EQ(error.text(), "3 is too far");
    EXPECT_EQ(error.worker(), "server0");
  }
  try {
    peer.sync<fails>("strange");
    FAIL() << "nothing was thrown";
  } catch (const rpc::RemoteError& error) {
    EXPECT_NE(error.type().find("Strange"), std::string::npos) << error.type();
    EXPECT_EQ(error.text(), "");
  }
  EXPECT_NE(text_of<rpc::RemoteError>([&] { peer.sync<fails>("number"); }).find("threw int"),
            std::string::npos);
  EXPECT_EQ(peer.sync<echo>(1), 1);
}

TEST_F(rpc_faults, a_deadline_of_0_is_a_Timeout_and_nothing_is_sent) {
  EXPECT_NE(text_of<Timeout>([&] { peer.with(0s).sync<echo>(1); }).find("had not begun"),
            std::string::npos);
  EXPECT_NE(text_of<Timeout>([&] { peer.with(-1s).sync<echo>(1); }).find("had not begun"),
            std::string::npos);
  EXPECT_EQ(peer.sync<echo>(2), 2);
  EXPECT_EQ(service->runs, 1);
  EXPECT_THROW(me.peer("server1", {.deadline = 0s}), Timeout);
}

TEST_F(rpc_faults, silence_ends_at_the_deadline) {
  job.net->stop("server0");
  EXPECT_NE(
      text_of<Timeout>([&] { peer.with(50ms).sync<echo>(1); }).find("has not answered in 50 ms"),
      std::string::npos);
  job.net->go_on("server0");
  EXPECT_EQ(peer.sync<echo>(2), 2) << "it was only stopped";
}

TEST_F(rpc_faults, a_handler_learns_that_its_deadline_passed_or_that_its_call_was_cancelled) {
  EXPECT_THROW(peer.with(50ms).sync<until_stopped>(), Timeout);
  EXPECT_TRUE(comes_about([&] { return service->stopped == 1; }));
  auto future = peer.async<until_stopped>();
  EXPECT_TRUE(comes_about([&] { return service->runs == 2; }));
  future.cancel();
  EXPECT_THROW(future.get(), Aborted);
  EXPECT_TRUE(comes_about([&] { return service->stopped == 2; }));
}

TEST_F(rpc_faults, a_call_that_was_cancelled_before_it_began_does_not_run) {
  std::vector<Future<int>> busy;
  for (int i = 0; i < 2; ++i) busy.push_back(peer.async<slow>(i));
  ASSERT_TRUE(service->gate.has_waiting(2));
  auto future = peer.async<echo>(1);
  future.cancel();
  EXPECT_THROW(future.get(), Aborted);
  auto late = peer.with(20ms).async<echo>(2);
  EXPECT_THROW(late.get(), Timeout);
  // The answer to a call of the server's comes behind the word that nobody waits.
  EXPECT_EQ(server.peer("trainer0").sync<echo>(4), 4);
  service->gate.open();
  for (auto& other : busy) other.get();
  EXPECT_EQ(peer.sync<echo>(3), 3);
  EXPECT_EQ(service->runs, 3) << "two that were slow and the last one";
}

TEST_F(rpc_faults, a_peer_that_was_killed_before_a_call_is_lost_and_the_call_did_not_begin) {
  job.net->kill("server0");
  EXPECT_TRUE(comes_about([&] {
    return began_of(peer.async<echo>(1)) == Began::no;  // once the channel's end has been noticed
  }));
  EXPECT_NE(text.find("had not begun"), text.npos) << text;
  EXPECT_THROW(me.peer("server0"), CallLost);
}

TEST_F(rpc_faults, a_peer_that_is_killed_during_a_call_had_begun_it) {
  auto future = peer.async<slow>(1);
  ASSERT_TRUE(service->gate.has_waiting(1));
  // The server tells that it began once it has taken a millisecond, with the next thing that it
  // does: before its answer to a call that comes later.
  const auto begin = Clock::now();
  EXPECT_TRUE(comes_about([&] { return peer.sync<echo>(0) == 0 && Clock::now() - begin > 10ms; }));
  for (int i = 0; i < 2; ++i) peer.sync<echo>(0);
  job.net->kill("server0");
  EXPECT_EQ(began_of(std::move(future)), Began::yes);
  EXPECT_NE(
      text.find(
          "worker 'server0' does not answer 'slow', which had begun: worker 'server0' is gone"),
      text.npos)
      << text;
}

TEST_F(rpc_faults, a_peer_that_is_killed_with_calls_on_the_way_may_have_begun_them) {
  job.net->stop("server0");
  auto future = peer.async<echo>(1);
  job.net->kill("server0");
  EXPECT_EQ(began_of(std::move(future)), Began::unknown);
  EXPECT_NE(text.find("may have begun"), text.npos) << text;
}

TEST_F(rpc_faults, a_peer_that_is_killed_after_a_call_has_answered_it) {
  auto future = peer.async<echo>(7);
  EXPECT_TRUE(comes_about([&] { return future.ready(); }));
  job.net->kill("server0");
  EXPECT_EQ(future.get(), 7);
}

TEST_F(rpc_faults, the_handlers_of_a_caller_that_is_killed_are_told_to_stop) {
  auto future = peer.async<until_stopped>();
  EXPECT_TRUE(comes_about([&] { return service->runs == 1; }));
  job.net->kill("trainer0");
  EXPECT_TRUE(comes_about([&] { return service->stopped == 1; }));
}

TEST_F(rpc_faults, who_comes_back_under_its_name_is_found_by_a_new_peer) {
  job.net->kill("server0");
  EXPECT_TRUE(comes_about([&] { return began_of(peer.async<echo>(1)) == Began::no; }));
  job.store->set("rpc/0/done/1", "gone");  // what its will says where it is a process
  auto again = job.start("server0", {rpc::offer<echo>(service)});
  EXPECT_EQ(began_of(peer.async<echo>(1)), Began::no) << "a peer is one life of a worker";
  EXPECT_TRUE(echoes(me));
}

TEST_F(rpc_faults, a_channel_that_was_cut_loses_its_calls_and_no_others) {
  auto other = job.start("trainer1");
  const rpc::Peer others = other.peer("server0");
  auto future = peer.async<slow>(1), kept = others.async<slow>(2);
  ASSERT_TRUE(service->gate.has_waiting(2));
  job.net->cut("trainer0", "server0");
  EXPECT_THROW(future.get(), CallLost);
  service->gate.open();
  EXPECT_EQ(kept.get(), 2);
}

TEST_F(rpc_faults, a_call_that_comes_twice_ends_the_session_and_runs_once) {
  testing::CapturedLog log;
  channel::Message call;
  job.net->intercept("trainer0", [&](channel::Message& message) {
    if (message.bytes[0] == 2) call = message;
    return true;
  });
  EXPECT_EQ(peer.sync<echo>(5), 5);
  job.net->put_in("trainer0", "server0", call);
  EXPECT_TRUE(comes_about([&] { return began_of(peer.async<echo>(1)) == Began::no; }));
  const int runs = service->runs;
  EXPECT_TRUE(echoes(me)) << "a new session";
  EXPECT_EQ(service->runs, runs + 1);
}

TEST_F(rpc_faults, hostile_messages_hurt_nobody_else) {
  testing::CapturedLog log;
  auto honest = job.start("trainer1");
  const rpc::Peer safe = honest.peer("server0");
  rpc::wire::Hello hello{"trainer0", 1 << 20, {}};
  rpc::wire::Call unknown;
  unknown.method = 1 << 30;
  unknown.id = 1000;
  std::string huge = rpc::wire::encode(rpc::wire::Call{4, 1001, rpc::wire::kNoBudget, {}});
  const uint64_t length = uint64_t{1} << 63;
  huge.append(reinterpret_cast<const char*>(&length), 8);
  channel::Message body{rpc::wire::encode(rpc::wire::Began{1}), {{std::make_shared<int>(1), 4}}};
  const std::vector<channel::Message> hostile{
      {"", {}},
      {std::string(100, '\0'), {}},
      {rpc::wire::encode(hello), {}},                                 // a second one
      {rpc::wire::encode(unknown), {}},                               // no such method
      {huge, {}},                                                     // 2^63 bytes of a string
      {rpc::wire::encode(rpc::wire::Reply{uint64_t{1} << 40}), {}},   // of a call never made
      {rpc::wire::encode(rpc::wire::Cancel{uint64_t{1} << 40}), {}},  // the same
      body};
  for (const auto& message : hostile) {
    EXPECT_TRUE(echoes(me));
    job.net->put_in("trainer0", "server0", message);
    EXPECT_EQ(safe.sync<echo>(2), 2);
  }
  EXPECT_EQ(safe.sync<echo>(3), 3);
}

TEST_F(rpc_faults, random_bytes_end_a_session_and_the_server_goes_on) {
  testing::CapturedLog log;
  auto honest = job.start("trainer1");
  const rpc::Peer safe = honest.peer("server0");
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    std::string bytes(random() % 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (!bytes.empty() && round % 2) bytes[0] = static_cast<char>(random() % 9);
    try {
      me.peer("server0");  // a session, again where the last one has ended
    } catch (const CallLost&) {
    }
    job.net->put_in("trainer0", "server0", {bytes, {}});
  }
  EXPECT_EQ(safe.sync<echo>(3), 3);
  EXPECT_TRUE(echoes(me));
}

TEST_F(rpc_faults, altered_replies_fail_their_calls_by_the_deadline) {
  testing::CapturedLog log;
  std::mt19937_64 random(5);
  job.net->intercept("server0", [&](channel::Message& message) {
    if (message.bytes[0] == 1) return true;
    if (random() % 4 == 0) return false;  // swallowed
    message.bytes[random() % message.bytes.size()] ^= static_cast<char>(1 << random() % 8);
    return true;
  });
  for (int round = 0; round < 60; ++round) {
    try {
      me.peer("server0").with(20ms).sync<swallow>("text");
    } catch (const Error&) {
    }
  }
  job.net->intercept("server0", [](channel::Message&) { return true; });
  EXPECT_TRUE(echoes(me));
}

TEST_F(rpc_faults, calls_that_a_peer_does_not_take_are_held_back_until_the_deadline) {
  auto options = job.options("narrow");
  options.most_unsent = 1 << 20;
  options.most_waiting = 8;
  auto narrow = rpc::init(options);
  const rpc::Peer to = narrow.peer("server0");
  job.net->stop("server0");
  std::vector<Future<std::string>> futures;
  for (int i = 0; i < 2; ++i) futures.push_back(to.async<swallow>(std::string(600 << 10, 'x')));
  const auto text =
      text_of<Timeout>([&] { to.with(50ms).sync<swallow>(std::string(600 << 10, 'x')); });
  EXPECT_NE(text.find("takes calls more slowly than they are made"), text.npos) << text;
  // Short ones overtake them, as far as the same bytes of theirs.
  for (int i = 0; i < 5; ++i) futures.push_back(to.async<swallow>(std::string(200 << 10, 'x')));
  const auto shorter =
      text_of<Timeout>([&] { to.with(50ms).sync<swallow>(std::string(200 << 10, 'x')); });
  EXPECT_NE(shorter.find("takes calls more slowly than they are made"), text.npos) << shorter;
  job.net->go_on("server0");
  for (auto& future : futures) EXPECT_GE(future.get().size(), 200u << 10);
  std::vector<Future<int>> slow_ones;
  for (int i = 0; i < 8; ++i) slow_ones.push_back(to.async<slow>(i));
  EXPECT_NE(text_of<Timeout>([&] { to.with(50ms).sync<echo>(1); }).find("more slowly"),
            std::string::npos);
  service->gate.open();
  for (auto& future : slow_ones) future.get();
  EXPECT_EQ(to.sync<echo>(1), 1);
}

TEST_F(rpc_faults, a_worker_that_lies_about_its_name_is_not_heard) {
  testing::CapturedLog log;
  job.net->intercept("liar", [&](channel::Message& message) {
    if (message.bytes[0] == 1) {
      auto hello = std::get<rpc::wire::Hello>(rpc::wire::decode(message.bytes).message);
      hello.worker = "server0";
      message.bytes = rpc::wire::encode(hello);
    }
    return true;
  });
  auto liar = job.start("liar");
  EXPECT_THROW(liar.peer("server0", {.deadline = 1s}).sync<echo>(1), Error);
  EXPECT_EQ(peer.sync<echo>(1), 1);
}

TEST_F(rpc_faults, a_worker_of_another_version_is_a_Mismatch_that_names_both) {
  testing::CapturedLog log;
  job.net->intercept("newer", [](channel::Message& message) {
    if (message.bytes[0] == 1) ++message.bytes[5];
    return true;
  });
  auto newer = job.start("newer", {rpc::offer<echo>(service)});
  const auto text = text_of<Mismatch>([&] { me.peer("newer"); });
  for (const int version : {rpc::wire::kVersion + 0, rpc::wire::kVersion + 1})
    EXPECT_NE(text.find(fmt::format("version {}", version)), text.npos) << text;
}

}  // namespace trireme::rpc_faults_test
