// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cli/doctor/sections.h"
#include "trireme/base/clock.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme::doctor {

#if defined(__x86_64__)
namespace {

constexpr long kSteps = 1 << 17;  // a fraction of a millisecond: some tries have the core alone

// Twelve chains: more than two units with a latency of four or five need. Each starts elsewhere, or
// the compiler would see that they are one.
#define TRIREME_CHAINS(STEP) \
  STEP(a) STEP(b) STEP(c) STEP(d) STEP(e) STEP(f) STEP(g) STEP(h) STEP(i) STEP(j) STEP(k) STEP(l)

__attribute__((target("avx2,fma"), noinline)) float run_avx2(long steps, float start) {
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
#define START(v) __m256 v = _mm256_set1_ps(start += 1);
#define STEP(v) v = _mm256_fmadd_ps(v, x, y);
#define SUM(v) a = _mm256_add_ps(a, v);
  TRIREME_CHAINS(START)
  for (long n = 0; n < steps; ++n) {
    TRIREME_CHAINS(STEP)
  }
  TRIREME_CHAINS(SUM)
#undef START
#undef STEP
#undef SUM
  return _mm256_cvtss_f32(a);
}

__attribute__((target("avx512f"), noinline)) float run_avx512(long steps, float start) {
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
#define START(v) __m512 v = _mm512_set1_ps(start += 1);
#define STEP(v) v = _mm512_fmadd_ps(v, x, y);
#define SUM(v) a = _mm512_add_ps(a, v);
  TRIREME_CHAINS(START)
  for (long n = 0; n < steps; ++n) {
    TRIREME_CHAINS(STEP)
  }
  TRIREME_CHAINS(SUM)
#undef START
#undef STEP
#undef SUM
  return _mm512_cvtss_f32(a);
}
#undef TRIREME_CHAINS

template <class Run>
double best_gflops(Run run, int lanes) {
  double best = 1e9;
  volatile float kept = 0;
  for (int attempt = 0; attempt < 200; ++attempt) {
    const auto begin = Clock::now();
    kept = kept + run(kSteps, static_cast<float>(attempt));
    best = std::min(best, seconds_since(begin));
  }
  return 12.0 * 2.0 * lanes * static_cast<double>(kSteps) / best / 1e9;
}

}  // namespace

FmaPeak measure_fma_peak() {
  FmaPeak peak;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    peak.avx2 = best_gflops(run_avx2, 8);
  if (__builtin_cpu_supports("avx512f")) peak.avx512 = best_gflops(run_avx512, 16);
  return peak;
}

#else

FmaPeak measure_fma_peak() { return {}; }

#endif

}  // namespace trireme::doctor
