// SPDX-License-Identifier: Apache-2.0
// What an event of base/events costs, in nanoseconds, beside what nobody can do without: reading
// the clock, and a store of 32 bytes. Medians of rounds.
//   cmake --build build/release --target event_cost && build/release/bench/event_cost
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/events/event_writer.h"
#include "trireme/base/events/progress_marks.h"

using namespace trireme;

namespace {

constexpr int kRounds = 15;
constexpr uint64_t kCalls = 1'000'000;

template <class Body>
double ns_a_call(const Body& body) {
  std::vector<double> rounds;
  for (int r = 0; r < kRounds; ++r) {
    const auto begin = Clock::now();
    for (uint64_t i = 1; i <= kCalls; ++i) body(i);
    rounds.push_back(seconds_since(begin) / static_cast<double>(kCalls) * 1e9);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

}  // namespace

int main() {
  const size_t bytes = event_bytes(kEventLanes, kEventsOfLane);
  void* memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  std::memset(memory, 0, bytes);
  EventWriter writer(memory);
  static volatile uint64_t words[4 * kEventsOfLane];
  const double clock = ns_a_call([](uint64_t) { words[0] = static_cast<uint64_t>(now_ns()); });
  const double least = ns_a_call([](uint64_t i) {
    volatile uint64_t* event = words + 4 * (i % kEventsOfLane);
    event[0] = static_cast<uint64_t>(now_ns());
    event[1] = 1, event[2] = i, event[3] = 0;
  });
  const double event = ns_a_call([&](uint64_t i) { writer.write(EventKind::progress, 3, i); });
  const int owner = 0;
  const double wait = ns_a_call([&](uint64_t) {
    writer.begin_wait(&owner,
                      "call 33 of group world, all_reduce(float32[192], sum) at train.cc:40");
    writer.end_wait(&owner);
  });
  const double nobody =
      ns_a_call([](uint64_t i) { mark_progress(Activity::step, static_cast<int64_t>(i)); });
  std::printf(
      "clock %.1f ns, with a store of 32 bytes %.1f ns, an event %.1f ns (%.2f ×), a wait %.1f ns, "
      "a mark without a launcher %.1f ns\n",
      clock, least, event, event / least, wait, nobody);
  return 0;
}
