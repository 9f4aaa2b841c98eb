// SPDX-License-Identifier: Apache-2.0
// Messages between two processes of one host (channel/local), beside what nobody can do without:
// a ping-pong over bare futexes, or over two words while both spin; an echo over a bare ring;
// memcpy. The two alternate in each round; the figures are medians over the rounds. Each process is
// bound to a CPU of its own. Bounds:
//   an empty call ≤ the bare ping-pong + 3 µs, asleep and spinning
//   64 calls outstanding ≥ 0.4 × the echo over the bare ring
//   64 MiB ≥ 0.75 × memcpy; 64 MiB that are given away ≤ 2 × an empty call
//   behind 256 MiB the p99 of an empty call grows by at most two chunks' copy
// Void above 5 % of foreign load.
//   cmake --build build/release --target channel && build/release/bench/channel [ROUNDS]
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/channel_bare.h"
#include "bench/channel_end.h"
#include "bench/foreign_load.h"
#include "trireme/base/clock.h"
#include "trireme/channel/local/hub.h"

using namespace trireme;
using namespace trireme::channel;
using namespace trireme::bare;

namespace {

constexpr uint64_t kSmall = uint64_t{64} << 20, kLarge = uint64_t{256} << 20;

LocalOptions options_of(const char* name, bool spins, Accept accept) {
  return {.self = {name, 1},
          .accept = std::move(accept),
          .spin = spins ? Duration(std::chrono::seconds(10)) : Duration::zero()};
}

/// The other process. It has two hubs, of which one sleeps and one spins.
[[noreturn]] void answer(Shared& s) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  bind_to(1);
  std::unique_ptr<Hub> hubs[2];
  std::vector<std::shared_ptr<End>> ends;
  for (const bool spins : {false, true}) {
    hubs[spins] = local_hub(options_of("answers", spins, [&](const auto& channel) {
      ends.push_back(std::make_shared<End>(true));
      ends.back()->channel = channel;
      return ends.back();
    }));
    std::strcpy(s.address[spins], hubs[spins]->address().c_str());
  }
  s.ready.store(true, std::memory_order_release);
  while (ends.size() < 2)
    for (auto& hub : hubs) hub->serve(Deadline::after(std::chrono::milliseconds(1)));
  answer_phases(s, [&](Phase phase) {
    hubs[phase == Phase::spinning]->serve(Deadline::after(std::chrono::milliseconds(20)));
  });
}

/// Empty calls while bodies of 256 MiB go the same way; at this part of them.
double behind_large(Caller& caller, const std::shared_ptr<void>& body, int bodies, double part) {
  std::vector<double> us;
  for (int i = 0; i < bodies; ++i) {
    const uint64_t due = caller.end.large + 1;
    caller.end.channel->send({"large", {{body, kLarge}}});
    while (caller.end.large < due) us.push_back(caller.call({}));
  }
  return median(us, part);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  auto* s = new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0)) Shared{};
  const pid_t other = ::fork();
  if (other == 0) answer(*s);
  bind_to(0);
  while (!s->ready.load(std::memory_order_acquire)) ::usleep(1000);
  std::unique_ptr<Hub> hubs[2];
  std::shared_ptr<End> ends[2];
  for (const bool spins : {false, true}) {
    hubs[spins] = local_hub(options_of("calls", spins, {}));
    ends[spins] = std::make_shared<End>(false);
    ends[spins]->channel = hubs[spins]->open(s->address[spins], {"answers", 1}, ends[spins],
                                             Deadline::after(std::chrono::seconds(10)));
  }
  Caller asleep{*hubs[0], *ends[0]}, spinning{*hubs[1], *ends[1]};
  const std::shared_ptr<void> from = warm(kLarge), to = warm(kLarge);
  const ForeignLoad load;
  enum {
    bare_a,
    call_a,
    bare_s,
    call_s,
    bare_e,
    call_e,
    copy,
    body,
    given,
    p99,
    p99_behind,
    chunk
  };
  std::vector<double> all[12];
  uint32_t bare_calls = 0, bare_spins = 0;
  BareEnd bare{RingWriter(&s->there), RingReader(&s->back)};
  for (int r = 0; r < rounds; ++r) {
    {
      const InPhase phase(*s, Phase::bare_asleep);
      all[bare_a].push_back(bare_asleep(*s, bare_calls, kAsleepCalls));
      bare_calls += kAsleepCalls;
    }
    {
      const InPhase phase(*s, Phase::asleep);
      all[call_a].push_back(asleep.empty_calls(kAsleepCalls));
    }
    {
      const InPhase phase(*s, Phase::bare_spin);
      all[bare_s].push_back(bare_spin(*s, bare_spins, kSpinCalls));
      bare_spins += kSpinCalls;
    }
    {
      const InPhase phase(*s, Phase::spinning);
      all[call_s].push_back(spinning.empty_calls(kSpinCalls));
    }
    {
      const InPhase phase(*s, Phase::bare_echo);
      all[bare_e].push_back(bare_echo(bare, kEchoes));
    }
    const InPhase phase(*s, Phase::spinning);
    all[call_e].push_back(spinning.outstanding(kEchoes));
    std::vector<double> copies, bodies, gifts, chunks;
    for (int i = 0; i < 9; ++i) {
      copies.push_back(copy_us(to.get(), from.get(), kSmall));
      bodies.push_back(spinning.call({"", {{from, kSmall}}}));
    }
    for (uint64_t at = 0; at + kChunk <= kLarge; at += kChunk * 8)
      chunks.push_back(
          copy_us(static_cast<char*>(to.get()) + at, static_cast<char*>(from.get()) + at, kChunk));
    for (int i = 0; i < kAsleepCalls; ++i) {
      const auto gift_begin = Clock::now();
      std::shared_ptr<void> gift = ends[1]->channel->empty(kSmall);
      spinning.call({"", {{std::move(gift), kSmall}}});
      gifts.push_back(seconds_since(gift_begin) * 1e6);
    }
    all[copy].push_back(median(copies)), all[body].push_back(median(bodies));
    all[given].push_back(median(gifts)), all[chunk].push_back(median(chunks));
    all[p99].push_back(spinning.empty_calls(kSpinCalls, 0.99));
    all[p99_behind].push_back(behind_large(spinning, from, 4, 0.99));
  }
  const auto m = [&](int which) { return median(all[which]); };
  std::printf("asleep: an empty call %.1f µs, bare futexes %.1f µs: + %.2f µs (bound 3)\n",
              m(call_a), m(bare_a), m(call_a) - m(bare_a));
  std::printf("spinning: an empty call %.2f µs, bare words %.2f µs: + %.2f µs (bound 3)\n",
              m(call_s), m(bare_s), m(call_s) - m(bare_s));
  std::printf(
      "64 outstanding: %.2f M/s, an echo over the bare ring %.2f M/s: %.2f of it (bound 0.4)\n",
      m(call_e) / 1e6, m(bare_e) / 1e6, m(call_e) / m(bare_e));
  std::printf("64 MiB: %.1f GB/s, memcpy %.1f GB/s: %.2f of it (bound 0.75)\n",
              static_cast<double>(kSmall) / m(body) / 1e3,
              static_cast<double>(kSmall) / m(copy) / 1e3, m(copy) / m(body));
  std::printf("64 MiB given away: %.2f µs, %.2f × an empty call (bound 2)\n", m(given),
              m(given) / m(call_s));
  std::printf(
      "p99 of an empty call: %.1f µs, behind 256 MiB %.1f µs: + %.1f × a chunk's copy of %.1f µs "
      "(bound 2)\n",
      m(p99), m(p99_behind), (m(p99_behind) - m(p99)) / m(chunk), m(chunk));
  const double foreign = load.part();
  std::printf("foreign load %.1f %%%s\n", 100 * foreign, foreign > 0.05 ? ": VOID" : "");
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  return 0;
}
