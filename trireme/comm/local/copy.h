// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace trireme::local {

/// From how many bytes on a call of all ranks leaves the last cache: its results would push out
/// each other, and reading the lines that they are written to is wasted.
inline size_t stream_from() {
  static const size_t cache = [] {
    const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? static_cast<size_t>(bytes) : size_t{32} << 20;
  }();
  return cache + cache / 4;
}

/// As memcpy; `streamed` past the caches.
inline void copy_block(void* to, const void* from, size_t n, bool streamed) {
#if defined(__SSE2__)
  if (streamed && n >= 4096) {
    auto* t = static_cast<unsigned char*>(to);
    const auto* f = static_cast<const unsigned char*>(from);
    const size_t head = (0 - reinterpret_cast<uintptr_t>(t)) % 64;
    std::memcpy(t, f, head);
    t += head, f += head, n -= head;
    for (; n >= 64; n -= 64, t += 64, f += 64) {
      const auto* v = reinterpret_cast<const __m128i*>(f);
      auto* w = reinterpret_cast<__m128i*>(t);
      _mm_prefetch(reinterpret_cast<const char*>(f) + 1024, _MM_HINT_NTA);
      const __m128i a = _mm_loadu_si128(v), b = _mm_loadu_si128(v + 1);
      const __m128i c = _mm_loadu_si128(v + 2), d = _mm_loadu_si128(v + 3);
      _mm_stream_si128(w, a), _mm_stream_si128(w + 1, b);
      _mm_stream_si128(w + 2, c), _mm_stream_si128(w + 3, d);
    }
    _mm_sfence();  // before the flag that says so
    std::memcpy(t, f, n);
    return;
  }
#else
  (void)streamed;
#endif
  std::memcpy(to, from, n);
}

}  // namespace trireme::local
