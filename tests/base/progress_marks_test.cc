// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/events/progress_marks.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "trireme/base/events/event_reader.h"
#include "trireme/base/events/handover.h"
#include "trireme/base/file.h"
#include "trireme/base/process/descriptor_socket.h"

// What a process shows its launcher. A process does so once, so that each test has one of its own.
namespace trireme::progress_marks_test {
namespace {

/// Runs `body` in a forked worker, waits until it kills itself, and opens what it has left; null:
/// it has handed nothing over.
std::unique_ptr<EventReader> left_by(const std::function<void()>& body, bool launcher = true) {
  PrivateFolder folder("marks");
  const std::string path = folder / "events";
  const UniqueFd listener = listen_for_descriptors(path, 8);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    ::setenv(kEventsVariable, launcher ? path.c_str() : "/no/such/path", 1);
    ::setenv("RANK", "5", 1);
    body();
    ::raise(SIGKILL);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  const auto peer = accept_for_descriptors(listener.get());
  if (!peer) return nullptr;
  EXPECT_EQ(peer->pid, pid);
  EventHandover message;
  ReceivedDescriptor got = receive_descriptor(peer->socket.get(), &message, sizeof message);
  EXPECT_TRUE(got.whole);
  EXPECT_EQ(message.rank, 5);
  EXPECT_FALSE(accept_for_descriptors(listener.get())) << "one process connects once";
  return EventReader::open(std::move(got.fd));
}

/// "step 7, alive, …".
std::string told(EventReader& reader) {
  std::string text;
  for (const SeenEvent& e : reader.take()) {
    text += text.empty() ? "" : ", ";
    text += e.kind == EventKind::alive ? "alive"
                                       : std::string(name_of(static_cast<Activity>(e.detail))) +
                                             " " + std::to_string(e.number);
  }
  return text;
}

TEST(base_progress_marks, are_there_when_the_process_has_been_killed) {
  const auto left = left_by([] {
    errno = 7;
    mark_alive();  // not before a mark
    WaitMark early;
    early.begin("too early");
    mark_progress(Activity::build);
    if (errno != 7) return ::_exit(1);
    mark_progress(Activity::step, 41);
    mark_alive();
    auto* const waits = new WaitMark;
    waits->begin("barrier() at a.cc:1");
  });
  ASSERT_TRUE(left);
  EXPECT_EQ(told(*left), "build 0, step 41, alive");
  EXPECT_EQ(left->waits_in(0), "barrier() at a.cc:1");
  EXPECT_EQ(left->lost(), 0u);
}

TEST(base_progress_marks, a_scope_goes_back_to_what_was_before) {
  const auto left = left_by([] {
    { const ActivityScope unmarked(Activity::save, 3); }
    if (marks_progress()) ::_exit(1);
    mark_progress(Activity::evaluate, 6);
    {
      const ActivityScope save(Activity::save, 6);
      const ActivityScope load(Activity::load);
    }
    if (!marks_progress()) ::_exit(1);
    mark_progress(Activity::done);
    if (marks_progress()) ::_exit(1);
    { const ActivityScope after(Activity::save, 7); }
  });
  ASSERT_TRUE(left);
  EXPECT_EQ(told(*left), "evaluate 6, save 6, load 0, save 6, evaluate 6, done 0");
}

TEST(base_progress_marks, a_forked_child_marks_nothing) {
  const auto left = left_by([] {
    mark_progress(Activity::step, 1);
    const pid_t child = ::fork();
    if (child == 0) {
      mark_progress(Activity::step, 100);
      mark_alive();
      WaitMark waits;
      waits.begin("a call of the child's");
      ::_exit(marks_progress() ? 1 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    mark_progress(Activity::step, WEXITSTATUS(status) == 0 ? 2 : 99);
  });
  ASSERT_TRUE(left);
  EXPECT_EQ(told(*left), "step 1, step 2");
  EXPECT_EQ(left->waits_in(0), "");
}

TEST(base_progress_marks, waits_of_threads_in_the_background_are_not_shown) {
  const auto left = left_by([] {
    mark_progress(Activity::step, 1);
    std::thread([] {
      work_in_background();
      WaitMark waits;
      waits.begin("barrier() of the savers");
      mark_alive();
      ::raise(SIGKILL);
    }).join();
  });
  ASSERT_TRUE(left);
  EXPECT_EQ(told(*left), "step 1, alive");
  for (uint32_t lane = 0; lane < left->lanes(); ++lane) EXPECT_EQ(left->waits_in(lane), "");
}

TEST(base_progress_marks, without_a_launcher_nothing_happens) {
  EXPECT_EQ(left_by(
                [] {
                  mark_progress(Activity::step, 1);
                  mark_alive();
                  if (marks_progress()) ::_exit(1);
                },
                false),
            nullptr);
  EXPECT_EQ(left_by([] {
              ::unsetenv(kEventsVariable);
              mark_progress(Activity::step, 1);
            }),
            nullptr);
}

}  // namespace
}  // namespace trireme::progress_marks_test
