// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/channel/local/ring.h"
#include "trireme/comm/local/waiter.h"

// What bench/channel.cc and bench/rpc.cc compare with: a ping-pong over two futexes, one over two
// words while both spin, and an echo over the rings of channels with nothing around them.
namespace trireme::bare {

using channel::local::kShort;
using channel::local::Lane;
using channel::local::RingReader;
using channel::local::RingWriter;
using local::cpu_relax;
using local::futex_wait;
using local::futex_wake;

constexpr int kAsleepCalls = 2000, kSpinCalls = 20000, kEchoes = 200000, kOutstanding = 64;

enum class Phase : uint32_t { bare_asleep, bare_spin, bare_echo, asleep, spinning };

/// What the bare peers use, and which of them has its turn.
struct Shared {
  alignas(64) std::atomic<uint32_t> phase;  // a futex; odd: `what` is under way
  std::atomic<Phase> what;
  std::atomic<uint32_t> begun;                // the phase that the other process has begun
  alignas(64) std::atomic<uint32_t> turn[2];  // whose it is, for sleepers: counts
  alignas(64) std::atomic<uint32_t> word[2];
  Lane there, back;
  std::atomic<bool> ready;
  char address[2][200];  // of the other process's hubs: asleep, spinning
};

inline void bind_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

inline double median(std::vector<double> values, double part = 0.5) {
  const auto at = values.begin() + static_cast<long>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

inline void wait_for_turn(std::atomic<uint32_t>& word, uint32_t at_least) {
  for (uint32_t seen; (seen = word.load(std::memory_order_acquire)) < at_least;)
    futex_wait(&word, seen, 100);
}
inline void bare_asleep_answers(Shared& s, uint32_t base, int calls) {
  for (int i = 1; i <= calls; ++i) {
    wait_for_turn(s.turn[1], base + static_cast<uint32_t>(i));
    s.turn[0].fetch_add(1, std::memory_order_release);
    futex_wake(&s.turn[0]);
  }
}
inline double bare_asleep(Shared& s, uint32_t base, int calls) {
  std::vector<double> us;
  for (int i = 1; i <= calls; ++i) {
    const auto begin = Clock::now();
    s.turn[1].fetch_add(1, std::memory_order_release);
    futex_wake(&s.turn[1]);
    wait_for_turn(s.turn[0], base + static_cast<uint32_t>(i));
    us.push_back(seconds_since(begin) * 1e6);
  }
  return median(us);
}
inline void spin_until(std::atomic<uint32_t>& word, uint32_t value) {
  while (word.load(std::memory_order_acquire) != value) cpu_relax();
}
inline void bare_spin_answers(Shared& s, uint32_t base, int calls) {
  for (int i = 1; i <= calls; ++i) {
    spin_until(s.word[1], base + static_cast<uint32_t>(i));
    s.word[0].store(base + static_cast<uint32_t>(i), std::memory_order_release);
  }
}
inline double bare_spin(Shared& s, uint32_t base, int calls) {
  std::vector<double> us;
  for (int i = 1; i <= calls; ++i) {
    const auto begin = Clock::now();
    s.word[1].store(base + static_cast<uint32_t>(i), std::memory_order_release);
    spin_until(s.word[0], base + static_cast<uint32_t>(i));
    us.push_back(seconds_since(begin) * 1e6);
  }
  return median(us);
}
/// An echo of records of 8 bytes, over the rings that channels have.
struct BareEnd {
  RingWriter out;
  RingReader in;
  void put(uint64_t number) {
    unsigned char* to;
    while (!(to = out.room(sizeof number))) cpu_relax();
    std::memcpy(to, &number, sizeof number);
    out.publish(kShort, sizeof number);
  }
  bool take(uint64_t& number) {
    const auto record = in.next();
    if (!record) return false;
    std::memcpy(&number, record->data, sizeof number);
    in.taken();
    return true;
  }
};
inline void bare_echo_answers(BareEnd& end, int calls) {
  uint64_t number;
  for (int i = 0; i < calls;)
    if (end.take(number))
      end.put(number), ++i;
    else
      cpu_relax();
}
inline double bare_echo(BareEnd& end, int calls) {
  const auto begin = Clock::now();
  int sent = 0;
  for (int got = 0; got < calls;) {
    for (; sent < calls && sent - got < kOutstanding; ++sent) end.put(static_cast<uint64_t>(sent));
    uint64_t number;
    if (end.take(number))
      ++got;
    else
      cpu_relax();
  }
  return calls / seconds_since(begin);
}

/// The other process, for ever: answers what the bare peers ask in the phase that has its turn;
/// `serve(phase)` serves channels for a moment in those of channels.
template <class Serve>
[[noreturn]] void answer_phases(Shared& s, const Serve& serve) {
  uint32_t calls = 0, spins = 0;
  BareEnd rings{RingWriter(&s.back), RingReader(&s.there)};
  for (uint32_t done = 0;;) {
    const uint32_t phase = s.phase.load(std::memory_order_acquire);
    if (phase == done || phase % 2 == 0) {
      futex_wait(&s.phase, phase, 100);
      continue;
    }
    done = phase;
    s.begun.store(phase, std::memory_order_release);
    switch (s.what.load()) {
      case Phase::bare_asleep:
        bare_asleep_answers(s, calls, kAsleepCalls);
        calls += kAsleepCalls;
        break;
      case Phase::bare_spin:
        bare_spin_answers(s, spins, kSpinCalls);
        spins += kSpinCalls;
        break;
      case Phase::bare_echo:
        bare_echo_answers(rings, kEchoes);
        break;
      case Phase::asleep:
      case Phase::spinning:
        while (s.phase.load(std::memory_order_acquire) == phase) serve(s.what.load());
    }
  }
}

/// While it lives, the other process does `what`.
class InPhase {
 public:
  InPhase(Shared& s, Phase what) : s_(s) {
    s.what = what;
    next();
    while (s.begun.load(std::memory_order_acquire) != s.phase.load()) cpu_relax();
  }
  ~InPhase() { next(); }

 private:
  void next() {
    s_.phase.fetch_add(1, std::memory_order_acq_rel);
    futex_wake(&s_.phase);
  }
  Shared& s_;
};

}  // namespace trireme::bare
