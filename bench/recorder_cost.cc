// SPDX-License-Identifier: Apache-2.0
// What the digest and the flight recorder cost a call, in nanoseconds: what the engine does for
// them between posting a collective and its completion, alone in a loop. ns of each: the median of
// rounds.
//   cmake --build build/release --target recorder_cost && build/release/bench/recorder_cost
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/philox.h"
#include "trireme/comm/flight/recorder.h"

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
  auto ring = std::make_unique<flight::Ring>();
  flight::Recorder recorder(ring.get());
  const CallSite site = CallSite::here();
  volatile uint64_t digest = 0;
  const flight::CallWords words{
      Collective::all_reduce, flight::DType::f32, ReduceOp::sum, 0, 0, 1024};
  uint64_t seq = 0;
  const double recording = ns_a_call([&](uint64_t) {
    ++seq;
    recorder.call(seq, words, site);
    recorder.matched(seq);
    recorder.done(seq);
  });
  // As the engine's digest_of(): two rounds of mixing on what ranks must agree on.
  const double digesting = ns_a_call(
      [&](uint64_t i) { digest = mix64(i * 0x9E3779B97F4A7C15u ^ mix64(i ^ mix64(1024))); });
  std::printf("recorder %.1f ns, digest %.1f ns, together %.1f ns a call\n", recording, digesting,
              recording + digesting);
  return 0;
}
