// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011). A value is a pure function of (key, counter), so it does not depend on how
// many ranks or threads draw, or in what order.
namespace trireme {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox4x32(PhiloxBlock counter, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53u} * counter[0], p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
}

/// The i-th block of the stream named by `key`.
constexpr PhiloxBlock philox_block(uint64_t key, uint64_t stream, uint64_t index) {
  return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                     static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                    key);
}

/// [0, 1) with 24 bits, exact in float32.
constexpr float uniform01(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }
/// [0, 1) with 53 bits.
constexpr double uniform01_double(uint32_t hi, uint32_t lo) {
  return static_cast<double>((uint64_t{hi} << 32 | lo) >> 11) * 0x1p-53;
}

constexpr uint64_t mix64(uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// A hash that is the same in every process, build and release (FNV-1a, then mixed).
constexpr uint64_t stable_hash(std::string_view text) {
  uint64_t h = 0xCBF29CE484222325u;
  for (char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return mix64(h);
}

/// Combines the parts of a key; their order matters.
constexpr uint64_t stable_hash(std::initializer_list<uint64_t> parts) {
  uint64_t h = 0x9E3779B97F4A7C15u;
  for (uint64_t p : parts) h = mix64(h ^ (mix64(p) + 0x9E3779B97F4A7C15u + (h << 6) + (h >> 2)));
  return h;
}

/// A number below n (n > 0), by multiplication: the bias is under 2^-32 for n < 2^32.
constexpr uint64_t below(uint64_t bits, uint64_t n) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * n >> 64);
}

}  // namespace trireme
