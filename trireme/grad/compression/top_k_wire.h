// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

// How k of n elements travel: places, and values in bfloat16 behind them. Places are whichever is
// shorter, which both ends know from n and k:
//   blocks   for each 65,536 elements how many of them travel (int32), then their places in the
//            block (uint16)
//   bits     for each element whether it does
// Pure: memory in, memory out.
namespace trireme::top_k {

static_assert(std::endian::native == std::endian::little, "the layout is little-endian");

constexpr int64_t kBlock = 65536;

/// How many of a parameter's elements travel; density in (0, 1].
inline int64_t chosen(int64_t elements, double density) {
  const auto wanted = static_cast<int64_t>(std::ceil(density * static_cast<double>(elements)));
  return wanted < elements ? wanted : elements;
}

/// Of a bucket's parts, each with `numel`.
template <class Parts>
int64_t chosen(const Parts& parts, double density) {
  int64_t all = 0;
  for (const auto& part : parts) all += chosen(part.numel, density);
  return all;
}

struct Layout {
  Layout(int64_t all, int64_t travelling)
      : n(all),
        k(travelling),
        blocks((n + kBlock - 1) / kBlock),
        words((n + 63) / 64),
        bits(8 * words < 4 * blocks + 2 * k),
        places(bits ? 8 * words : 4 * blocks + (2 * k + 3) / 4 * 4),
        bytes((places + 2 * k + 15) / 16 * 16) {}

  int64_t n, k, blocks, words;
  bool bits;
  int64_t places, bytes;  // where values begin; of both together
};

/// Writes places, ascending, and the bfloat16 values that belong to them.
class Writer {
 public:
  Writer(const Layout& layout, char* to) : layout_(layout), to_(to) {
    std::memset(to_, 0, static_cast<size_t>(layout_.places));
  }
  void add(int64_t index) {
    if (layout_.bits) {
      const uint64_t bit = uint64_t{1} << (index % 64);
      reinterpret_cast<uint64_t*>(to_)[index / 64] |= bit;
    } else {
      ++reinterpret_cast<int32_t*>(to_)[index / kBlock];
      reinterpret_cast<uint16_t*>(to_ + 4 * layout_.blocks)[count_++] =
          static_cast<uint16_t>(index % kBlock);
    }
  }
  uint16_t* values() { return reinterpret_cast<uint16_t*>(to_ + layout_.places); }

 private:
  const Layout layout_;
  char* const to_;
  int64_t count_ = 0;
};

/// Reads them again, in order.
class Reader {
 public:
  Reader(const Layout& layout, const char* from) : layout_(layout), from_(from) {}

  /// k places, ascending, below n: memory of a peer may hold anything.
  bool valid() const {
    int64_t found = 0;
    if (layout_.bits) {
      for (int64_t w = 0; w < layout_.words; ++w) found += std::popcount(word(w));
      const int64_t over = layout_.n % 64;
      return found == layout_.k && (!over || word(layout_.words - 1) >> over == 0);
    }
    for (int64_t b = 0; b < layout_.blocks; ++b) {
      const int64_t here = count(b);
      if (here < 0 || here > layout_.k - found) return false;
      int64_t before = -1;
      for (int64_t i = found; i < found + here; ++i) {
        if (place(i) <= before) return false;
        before = place(i);
      }
      if (here && b * kBlock + before >= layout_.n) return false;
      found += here;
    }
    return found == layout_.k;
  }

  /// f(place, number of the value) for the next ones, as long as they are below `end`.
  template <class F>
  void until(int64_t end, F f) {
    if (layout_.bits)
      bits_until(end, f);
    else
      blocks_until(end, f);
  }

 private:
  uint64_t word(int64_t w) const { return reinterpret_cast<const uint64_t*>(from_)[w]; }
  int32_t count(int64_t b) const { return reinterpret_cast<const int32_t*>(from_)[b]; }
  int64_t place(int64_t i) const {
    return reinterpret_cast<const uint16_t*>(from_ + 4 * layout_.blocks)[i];
  }

  template <class F>
  void bits_until(int64_t end, F f) {
    while (at_ < end) {
      const int64_t first = at_ / 64 * 64, last = first + 64 < end ? first + 64 : end;
      uint64_t set = word(at_ / 64) & (~uint64_t{0} << (at_ - first));
      if (last - first < 64) set &= (uint64_t{1} << (last - first)) - 1;
      for (; set; set &= set - 1) f(first + std::countr_zero(set), value_++);
      at_ = last;
    }
  }
  template <class F>
  void blocks_until(int64_t end, F f) {
    for (; block_ < layout_.blocks; ++block_, seen_ = 0)
      for (const int64_t here = count(block_);; ++seen_, ++value_) {
        if (seen_ == here) break;
        const int64_t index = block_ * kBlock + place(value_);
        if (index >= end) return;
        f(index, value_);
      }
  }

  const Layout layout_;
  const char* const from_;
  int64_t value_ = 0;             // the next
  int64_t at_ = 0;                // bits: the element
  int64_t block_ = 0, seen_ = 0;  // blocks: and how many of it
};

}  // namespace trireme::top_k
