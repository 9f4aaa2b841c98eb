// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <tuple>

#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/events/event_reader.h"
#include "trireme/base/events/event_writer.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/file.h"

// event-v1.bin is the memory of a process as version 1 was when it landed, with numbers for what
// differs from one run to the next: process 4711, born at 1000, thread 7, events at 1001, 1002, …
namespace trireme::event_format_test {
namespace {

constexpr uint32_t kLanes = 2, kEvents = 4;

std::string fixture() {
  return read_file(trireme::testing::source_path("/tests/formats/event-v1.bin"));
}

struct Memory {
  Memory() : bytes(event_bytes(kLanes, kEvents)), at(std::aligned_alloc(64, bytes)) {
    std::memset(at, 0, bytes);
  }
  ~Memory() { std::free(at); }
  Memory(const Memory&) = delete;
  size_t bytes;
  void* at;
};

std::string written_now() {
  Memory memory;
  EventWriter writer(memory.at, kLanes, kEvents);
  auto* words = static_cast<uint64_t*>(memory.at);
  std::thread([&] {
    writer.write(EventKind::progress, static_cast<uint8_t>(Activity::step), 41);
    writer.write(EventKind::progress, static_cast<uint8_t>(Activity::step), 42);
    writer.write(EventKind::alive, 0, 0);
    writer.begin_wait(&writer, "call 33 of group world, barrier() at train.cc:40");
    const int32_t pid = 4711;
    std::memcpy(reinterpret_cast<char*>(memory.at) + 20, &pid, 4);
    words[3] = 1000;
    words[8] = 7;
    for (uint64_t i = 0; i < 3; ++i) words[8 + 2 * 32 + 4 * i] = 1001 + i;
  }).join();
  words[8] = 7;  // the thread has given its lane back
  return {static_cast<const char*>(memory.at), memory.bytes};
}

TEST(formats_event, version_1_is_written_byte_for_byte) {
  ASSERT_EQ(kEventVersion, 1u) << "a new version: keep this fixture, add one of the new";
  EXPECT_TRUE(written_now() == fixture());
}

TEST(formats_event, version_1_is_read) {
  const std::string bytes = fixture();
  Memory memory;
  ASSERT_EQ(bytes.size(), memory.bytes);
  std::memcpy(memory.at, bytes.data(), bytes.size());
  EventReader reader(memory.at, memory.bytes);
  const auto seen = reader.take();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[1].kind, EventKind::progress);
  EXPECT_EQ(static_cast<Activity>(seen[1].detail), Activity::step);
  EXPECT_EQ(seen[1].number, 42u);
  EXPECT_EQ(seen[1].time_ns, 1002u);
  EXPECT_EQ(seen[2].kind, EventKind::alive);
  EXPECT_EQ(reader.thread_of(0), 7u);
  EXPECT_EQ(reader.waits_in(0), "call 33 of group world, barrier() at train.cc:40");
}

TEST(formats_event, the_numbers_of_activities_stay) {
  for (const auto& [at, number, name] : {std::tuple{Activity::build, 1, "build"},
                                         {Activity::load, 2, "load"},
                                         {Activity::step, 3, "step"},
                                         {Activity::evaluate, 4, "evaluate"},
                                         {Activity::save, 5, "save"},
                                         {Activity::done, 6, "done"}}) {
    EXPECT_EQ(static_cast<int>(at), number);
    EXPECT_STREQ(name_of(at), name);
  }
}

}  // namespace
}  // namespace trireme::event_format_test
