// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/channel/workers.h"
#include "trireme/base/check.h"
#include "trireme/base/fd.h"

// What every Hub must do when the other worker is a process that dies.
namespace trireme::channel::conformance {

/// A worker in a process of its own, forked before this one starts a thread. It opens a channel to
/// the address that it is told, and does `body` with it.
class OtherProcess {
 public:
  using Work = std::function<void(Hub&, const std::shared_ptr<Channel>&, Inbox&)>;

  OtherProcess(const MakeHub& make, const Work& body) {
    int ends[2];
    if (::pipe(ends) != 0) fail<ResourceError>("pipe: {}", errno_text());
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[1]);
      ::alarm(120);
      char text[1024];
      const ssize_t n = ::read(ends[0], text, sizeof text);
      if (n <= 0) ::_exit(2);
      try {
        const auto hub = make({{"child", 7}, {}, {}});
        const auto inbox = std::make_shared<Inbox>();
        const auto channel =
            hub->open(std::string(text, static_cast<size_t>(n)), {"parent", 7}, inbox, soon());
        body(*hub, channel, *inbox);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "child: %s\n", e.what());
        ::_exit(1);
      }
      ::_exit(0);
    }
    ::close(ends[0]);
    to_.reset(ends[1]);
  }
  ~OtherProcess() { kill(); }
  void tell(const std::string& address) {
    if (::write(to_.get(), address.data(), address.size()) < 0) ADD_FAILURE() << errno_text();
  }
  pid_t pid() const { return pid_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd to_;
};

/// The only channel that was opened to this worker.
inline Worker::Accepted only_channel(const Worker& worker) {
  testing::eventually([&] { return worker.accepted().size() == 1; }, std::chrono::seconds(30));
  return worker.accepted().at(0);
}

inline void a_peer_killed_in_the_middle_of_a_body_is_lost_and_what_came_stays(const MakeHub& make) {
  OtherProcess child(make, [](Hub& hub, const std::shared_ptr<Channel>& channel, Inbox&) {
    for (uint64_t i = 0;; ++i) {
      channel->send({std::to_string(i), {body_of(8 << 20, i)}});
      while (channel->unsent() > (8 << 20))
        hub.serve(Deadline::after(std::chrono::milliseconds(1)));
    }
  });
  Worker parent(make, "parent");
  child.tell(parent.address());
  const auto [channel, inbox] = only_channel(parent);
  ASSERT_TRUE(inbox->has(2));
  child.kill();
  ASSERT_TRUE(inbox->is_closed());
  EXPECT_NE(inbox->why().find("'child'"), std::string::npos) << inbox->why();
  EXPECT_FALSE(channel->send({"anybody?", {}}));
  uint64_t next = 0;
  for (const Message& message : inbox->take_all()) {
    EXPECT_EQ(message.bytes, std::to_string(next));
    EXPECT_TRUE(is_body(message.bodies.at(0), 8 << 20, next++));
  }
}

inline void a_peer_killed_while_it_holds_bodies_takes_nothing_along(const MakeHub& make) {
  OtherProcess child(make, [](Hub& hub, const std::shared_ptr<Channel>& channel, Inbox& inbox) {
    while (inbox.messages().size() < 4) hub.serve(Deadline::after(std::chrono::seconds(1)));
    channel->send({"I have them", {}});
    while (true) hub.serve(Deadline::after(std::chrono::seconds(1)));
  });
  Worker parent(make, "parent");
  child.tell(parent.address());
  const auto [channel, inbox] = only_channel(parent);
  std::weak_ptr<void> made;
  for (uint64_t i = 0; i < 4; ++i) {
    std::shared_ptr<void> memory = channel->empty(1 << 20);
    made = memory;
    fill(memory.get(), 1 << 20, i);
    ASSERT_TRUE(channel->send({"", {{std::move(memory), 1 << 20}}}));
  }
  ASSERT_TRUE(inbox->has(1));
  child.kill();
  ASSERT_TRUE(inbox->is_closed());
  EXPECT_TRUE(testing::eventually([&] { return made.expired(); }));
  EXPECT_EQ(channel->unsent(), 0u);
}

inline void what_a_process_sent_before_it_ended_comes(const MakeHub& make) {
  OtherProcess child(make, [](Hub& hub, const std::shared_ptr<Channel>& channel, Inbox&) {
    for (uint64_t i = 0; i < 100; ++i) channel->send({std::to_string(i), {body_of(20000, i)}});
    while (channel->unsent() > 0) hub.serve(Deadline::after(std::chrono::milliseconds(1)));
    channel->close("that was all");
  });
  Worker parent(make, "parent");
  child.tell(parent.address());
  const auto [channel, inbox] = only_channel(parent);
  ASSERT_TRUE(inbox->is_closed());
  const auto got = inbox->messages();
  ASSERT_EQ(got.size(), 100u);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(got[i].bytes, std::to_string(i));
    EXPECT_TRUE(is_body(got[i].bodies.at(0), 20000, i));
  }
}

}  // namespace trireme::channel::conformance

#define TRIREME_CHANNEL_CONFORMANCE_OF_PROCESSES(suite, make)                                \
  TRIREME_CHANNEL_FACT(suite, make,                                                          \
                       a_peer_killed_in_the_middle_of_a_body_is_lost_and_what_came_stays)    \
  TRIREME_CHANNEL_FACT(suite, make, a_peer_killed_while_it_holds_bodies_takes_nothing_along) \
  TRIREME_CHANNEL_FACT(suite, make, what_a_process_sent_before_it_ended_comes)
