// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/events/event_ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "tests/support/sanitized.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/events/event_reader.h"
#include "trireme/base/events/event_writer.h"
#include "trireme/base/fd.h"

namespace trireme::event_ring_test {
namespace {

/// Memory of a process's events. It is kept for ever: a thread that has a lane gives it back when
/// it ends.
struct Memory {
  explicit Memory(uint32_t lane_count = 2, uint32_t events = 8)
      : lanes(lane_count), bytes(event_bytes(lane_count, events)) {
    void* p = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    std::memset(p, 0, bytes);
    kept().push_back(p);
    at = p;
    writer.reset(new EventWriter(at, lanes, events));
  }
  static std::vector<void*>& kept() {
    static auto* all = new std::vector<void*>;
    return *all;
  }
  EventLane* lane(size_t i) {
    return reinterpret_cast<EventLane*>(static_cast<char*>(at) + 64) + i;
  }
  EventHead* head() { return static_cast<EventHead*>(at); }
  std::unique_ptr<EventReader> reader() const { return std::make_unique<EventReader>(at, bytes); }

  uint32_t lanes;
  size_t bytes;
  void* at;
  std::unique_ptr<EventWriter> writer;
};

void in_a_thread(const std::function<void()>& body) { std::thread(body).join(); }

std::vector<uint64_t> numbers(const std::vector<SeenEvent>& events) {
  std::vector<uint64_t> all;
  for (const SeenEvent& e : events) all.push_back(e.number);
  return all;
}

TEST(base_event_ring, events_are_read_once_and_in_order) {
  Memory memory;
  const auto reader = memory.reader();
  const auto before = static_cast<uint64_t>(now_ns());
  in_a_thread([&] {
    memory.writer->write(EventKind::progress, 3, 7);
    memory.writer->write(EventKind::alive, 0, 8);
  });
  const auto seen = reader->take();
  ASSERT_EQ(numbers(seen), (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(seen[0].kind, EventKind::progress);
  EXPECT_EQ(seen[0].detail, 3);
  EXPECT_EQ(seen[1].kind, EventKind::alive);
  EXPECT_GE(seen[0].time_ns, before);
  EXPECT_GE(seen[1].time_ns, seen[0].time_ns);
  EXPECT_TRUE(reader->take().empty());
  EXPECT_EQ(reader->lost(), 0u);
}

TEST(base_event_ring, what_was_overwritten_before_a_look_is_counted) {
  Memory memory(1, 8);
  const auto reader = memory.reader();
  in_a_thread([&] {
    for (uint64_t i = 0; i < 100; ++i) memory.writer->write(EventKind::progress, 1, i);
  });
  // The oldest of the eight could be under way of being overwritten.
  EXPECT_EQ(numbers(reader->take()), (std::vector<uint64_t>{93, 94, 95, 96, 97, 98, 99}));
  EXPECT_EQ(reader->lost(), 93u);
}

TEST(base_event_ring, lanes_of_threads_that_have_ended_are_taken_by_others) {
  Memory memory(1);
  const auto reader = memory.reader();
  for (uint64_t i = 0; i < 5; ++i)
    in_a_thread([&] { memory.writer->write(EventKind::progress, 1, i); });
  EXPECT_EQ(numbers(reader->take()), (std::vector<uint64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(reader->thread_of(0), 0u);
  EXPECT_EQ(reader->lost(), 0u);
}

TEST(base_event_ring, events_of_threads_without_a_lane_are_counted) {
  Memory memory(1);
  const auto reader = memory.reader();
  in_a_thread([&] {
    memory.writer->write(EventKind::progress, 1, 1);
    in_a_thread([&] { memory.writer->write(EventKind::progress, 1, 2); });
  });
  EXPECT_EQ(numbers(reader->take()), std::vector<uint64_t>{1});
  EXPECT_EQ(reader->lost(), 1u);
}

TEST(base_event_ring, what_a_thread_waits_in_is_shown_and_the_outer_wait_counts) {
  Memory memory(1);
  const auto reader = memory.reader();
  in_a_thread([&] {
    const int outer = 0, inner = 0;
    EXPECT_EQ(reader->waits_in(0), "");
    memory.writer->begin_wait(&outer, "barrier() at a.cc:1");
    memory.writer->begin_wait(&inner, "recv");
    EXPECT_EQ(reader->waits_in(0), "barrier() at a.cc:1");
    memory.writer->end_wait(&inner);
    memory.writer->begin_wait(&outer, "barrier() at a.cc:2");
    EXPECT_EQ(reader->waits_in(0), "barrier() at a.cc:2");
    memory.writer->end_wait(&outer);
    EXPECT_EQ(reader->waits_in(0), "");
    memory.writer->begin_wait(&outer, std::string(1000, 'x'));
    EXPECT_EQ(reader->waits_in(0), std::string(kWaitBytes - 1, 'x'));
  });
  in_a_thread([&] {
    memory.writer->write(EventKind::alive, 0, 0);  // a thread that waits no longer had the lane
    EXPECT_EQ(reader->waits_in(0), "");
  });
  EXPECT_EQ(reader->waits_in(7), "");
}

// ThreadSanitizer watches it, too.
TEST(base_event_ring, two_threads_write_while_one_reads_and_none_is_torn) {
  Memory memory(4, 64);
  const auto reader = memory.reader();
  constexpr uint64_t kEach = 20'000;
  std::latch begin(3);
  std::atomic<int> left{2};
  const auto write = [&](uint64_t mine) {
    for (uint64_t i = 1; i <= kEach; ++i) {
      if (i == 2) begin.arrive_and_wait();  // each has a lane of its own
      // The detail tells whether the words of one event are of one event.
      memory.writer->write(EventKind::progress, static_cast<uint8_t>((mine + i) % 251),
                           mine << 32 | i);
      if (i % 64 == 0) memory.writer->begin_wait(&begin, i % 128 ? "aaaa" : "bbbb");
    }
    memory.writer->end_wait(&begin);
    left.fetch_sub(1);
  };
  std::thread a(write, 1), b(write, 2);
  begin.arrive_and_wait();
  std::map<uint64_t, uint64_t> last;
  uint64_t seen = 0;
  for (bool ends = false; !ends;) {
    ends = left.load() == 0;
    for (const SeenEvent& e : reader->take()) {
      ++seen;
      const uint64_t who = e.number >> 32, i = e.number & 0xffffffff;
      ASSERT_EQ(e.detail, (who + i) % 251);
      ASSERT_GT(i, last[who]);
      last[who] = i;
    }
    for (uint32_t lane = 0; lane < 4; ++lane) {
      const std::string waits = reader->waits_in(lane);
      ASSERT_TRUE(waits.empty() || waits == "aaaa" || waits == "bbbb") << waits;
    }
  }
  a.join();
  b.join();
  EXPECT_EQ(seen + reader->lost(), 2 * kEach);
  EXPECT_EQ(last[1], kEach);
  EXPECT_EQ(last[2], kEach);
}

/// From here on any other system call kills the process. (The strict mode forbids the clock, too.)
bool only_exit_is_allowed() {
  sock_filter program[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_exit},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL},
  };
  const sock_fprog filter{std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(base_event_ring, an_event_takes_neither_a_system_call_nor_an_allocation) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer makes system calls of its own";
  Memory memory;
  const pid_t child = ::fork();
  if (child == 0) {
    const int owner = 0;
    memory.writer->write(EventKind::progress, 1, 0);  // this one claims the lane
    const auto before = ::mallinfo2().uordblks;
    if (!only_exit_is_allowed()) ::syscall(SYS_exit, 77);
    for (uint64_t i = 0; i < 1000; ++i) {
      memory.writer->write(EventKind::progress, 1, i);
      memory.writer->begin_wait(&owner, "barrier()");
      memory.writer->end_wait(&owner);
    }
    ::syscall(SYS_exit, ::mallinfo2().uordblks == before ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "it allocates";
}

std::string refusal(const Memory& memory, size_t bytes) {
  try {
    EventReader reader(memory.at, bytes);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(base_event_ring, a_head_that_does_not_fit_its_memory_is_refused) {
  Memory memory;
  EXPECT_EQ(refusal(memory, memory.bytes), "");
  EXPECT_NE(refusal(memory, memory.bytes - 1).find("2 lanes of 8 events"), std::string::npos);
  for (uint32_t lanes : {0u, 3u, 1u << 31, ~0u}) {
    memory.head()->lanes = lanes;
    EXPECT_NE(refusal(memory, memory.bytes), "") << lanes;
  }
  memory.head()->lanes = 2;
  for (uint32_t events : {0u, 1u, 7u, 16u, 1u << 31, ~0u}) {
    memory.head()->events = events;
    EXPECT_NE(refusal(memory, memory.bytes), "") << events;
  }
  memory.head()->events = 8;
  memory.head()->version = 2;
  EXPECT_NE(refusal(memory, memory.bytes).find("version 2; this launcher reads up to 1"),
            std::string::npos);
  memory.head()->version = 1;
  memory.head()->magic ^= 1;
  EXPECT_NE(refusal(memory, memory.bytes), "");
}

TEST(base_event_ring, a_worker_that_writes_garbage_is_read_within_its_memory) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    Memory memory(2, 8);
    const auto reader = memory.reader();
    auto* const words = static_cast<uint64_t*>(memory.at);
    for (int look = 0; look < 4; ++look) {
      // The head changes, too: it was read once. Small numbers and large ones.
      for (size_t i = 0; i < memory.bytes / 8; ++i)
        if (random() % 3 == 0)
          words[i] = random() % 2 ? random() : random() % 20 - (random() % 2 ? 10 : 0);
      EXPECT_LE(reader->take().size(), 16u);
      for (uint32_t lane : {0u, 1u, 2u, ~0u}) {
        const std::string waits = reader->waits_in(lane);
        EXPECT_LE(waits.size(), kWaitBytes);
        for (char c : waits) EXPECT_FALSE(static_cast<unsigned char>(c) < 32);
        reader->thread_of(lane);
      }
      reader->lost();
    }
  }
}

TEST(base_event_ring, memory_of_which_pages_can_go_away_is_refused) {
  const auto refused = [](UniqueFd fd) {
    try {
      EventReader::open(std::move(fd));
      return std::string();
    } catch (const Corrupt& e) {
      return std::string(e.what());
    }
  };
  const size_t bytes = event_bytes(kEventLanes, kEventsOfLane);
  const auto memory = [&](bool all, int seals) {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(all ? ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes))
                  : ::ftruncate(fd.get(), static_cast<off_t>(bytes)),
              0);
    ::fcntl(fd.get(), F_ADD_SEALS, seals);
    return fd;
  };
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_NE(refused(memory(false, kSeals)).find("of which 0 are there"), std::string::npos);
  EXPECT_NE(refused(memory(true, F_SEAL_GROW | F_SEAL_SEAL)).find("sealed"), std::string::npos);
  EXPECT_NE(refused(memory(true, kSeals)).find("does not begin as such"), std::string::npos);
  UniqueFd small(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ::fcntl(small.get(), F_ADD_SEALS, kSeals);
  EXPECT_NE(refused(std::move(small)).find("has 0 bytes"), std::string::npos);
  EXPECT_NE(refused(UniqueFd(::open("/dev/zero", O_RDONLY | O_CLOEXEC))).find("no shared memory"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::event_ring_test
