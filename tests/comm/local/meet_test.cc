// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/events/event_reader.h"
#include "trireme/base/events/handover.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/file.h"
#include "trireme/base/process/descriptor_socket.h"
#include "trireme/comm/local/host/host.h"

namespace meet_test {

using namespace trireme;
using std::chrono::seconds;

namespace {

/// A process that marks, and is rank `rank` of 3 that share memory; the others never come. `there`:
/// whose names it finds.
class Alone {
 public:
  Alone(int rank, int there) {
    const std::string path = folder_ / "events";
    const UniqueFd listener = listen_for_descriptors(path, 8);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::alarm(120);
      ::setenv(kEventsVariable, path.c_str(), 1);
      mark_progress(Activity::build);
      meet(rank, there);
      ::_exit(0);
    }
    pollfd comes{listener.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&comes, 1, 60'000), 1);
    peer_ = accept_for_descriptors(listener.get());
    if (!peer_) return;
    comes.fd = peer_->socket.get();
    EXPECT_EQ(::poll(&comes, 1, 60'000), 1);
    EventHandover message;
    ReceivedDescriptor got = receive_descriptor(peer_->socket.get(), &message, sizeof message);
    events_ = EventReader::open(std::move(got.fd));
  }
  ~Alone() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  /// What its launcher sees, as soon as it waits.
  std::string waits_in() const {
    std::string text;
    for (const Deadline end = Deadline::after(seconds(60)); text.empty() && !end.expired();) {
      for (uint32_t lane = 0; events_ && lane < events_->lanes() && text.empty(); ++lane)
        text = events_->waits_in(lane);
      ::poll(nullptr, 0, 1);
    }
    return text;
  }

 private:
  static void meet(int rank, int there) {
    std::map<std::string, std::string> table;
    local::Exchange exchange;
    exchange.set = [&](const std::string& key, const std::string& value) { table[key] = value; };
    exchange.get = [&](const std::string& key, Deadline until) {
      if (table.contains(key) && there >= rank) return table[key];
      ::poll(nullptr, 0, until.poll_ms(60'000));
      throw Timeout(key + " is not there");
    };
    try {
      local::process_host(rank, 3, exchange, Deadline::after(seconds(60)));
    } catch (const Error&) {
    }
  }

  PrivateFolder folder_{"meet"};
  pid_t pid_ = -1;
  std::optional<DescriptorPeer> peer_;
  std::unique_ptr<EventReader> events_;
};

}  // namespace

TEST(comm_local_meet, whom_a_rank_waits_for_is_shown_to_its_launcher) {
  EXPECT_EQ(Alone(2, -1).waits_in(), "the meeting of the ranks on this host, for rank 0");
  // Rank 0 reads its own name at first.
  const Alone first(0, 0);
  std::string text;
  for (const Deadline end = Deadline::after(seconds(60));
       text != "the meeting of the ranks on this host, for rank 1, 2" && !end.expired();)
    text = first.waits_in();
  EXPECT_EQ(text, "the meeting of the ranks on this host, for rank 1, 2");
}

}  // namespace meet_test
