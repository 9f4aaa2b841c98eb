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

/// The size in bytes from which a collective call bypasses the last-level cache: its results would
/// evict each other, and reading the lines that they overwrite is wasted. Rented machines share
/// that cache with other tenants: of 480 MiB reported by one, about 100 MiB were usable.
inline size_t stream_from() {
  static const size_t limit = [] {
    constexpr size_t kMost = size_t{96} << 20;
    const long named = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
    const size_t cache = named > 0 ? static_cast<size_t>(named) : size_t{32} << 20;
    return cache + cache / 4 < kMost ? cache + cache / 4 : kMost;
  }();
  return limit;
}

#if defined(__SSE2__)
inline void stream_line(unsigned char* to, const unsigned char* from) {
  const auto* f = reinterpret_cast<const __m128i*>(from);
  auto* t = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(f), b = _mm_loadu_si128(f + 1);
  const __m128i c = _mm_loadu_si128(f + 2), d = _mm_loadu_si128(f + 3);
  _mm_stream_si128(t, a), _mm_stream_si128(t + 1, b);
  _mm_stream_si128(t + 2, c), _mm_stream_si128(t + 3, d);
}
#endif

/// As memcpy; if `streamed`, it bypasses the caches.
inline void copy_block(void* to, const void* from, size_t n, bool streamed) {
#if defined(__SSE2__)
  // Four pages at a time, one line of each in turn: the CPU prefetches that many streams by itself.
  constexpr size_t kPage = 4096, kPages = 4;
  if (streamed && n >= 2 * kPages * kPage) {
    auto* t = static_cast<unsigned char*>(to);
    const auto* f = static_cast<const unsigned char*>(from);
    const size_t head = (0 - reinterpret_cast<uintptr_t>(t)) % 64;
    std::memcpy(t, f, head);
    t += head, f += head, n -= head;
    for (; n >= kPages * kPage; n -= kPages * kPage, t += kPages * kPage, f += kPages * kPage)
      for (size_t line = 0; line < kPage; line += 64)
        for (size_t page = 0; page < kPages * kPage; page += kPage)
          stream_line(t + page + line, f + page + line);
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
