// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

// What lies where in the bytes that int8 and sign send, for their encoders on the CPU and on
// devices. Each begins with a float: not 0 where the sender's part is not usable.
namespace trireme::codec_wire {

/// int8: a bucket of `elements` over `ranks` ranks is a share for each rank, and a share is a
/// header, scales, values.
struct Int8 {
  static constexpr int64_t kHeader = 16;
  Int8(int64_t elements, int64_t ranks, int64_t block)
      : elements(elements),
        // Of whole cache lines, so that no two ranks' blocks begin within one.
        share(((elements + ranks - 1) / ranks + 15) / 16 * 16),
        scales((share + block - 1) / block),
        bytes((values() + share + 15) / 16 * 16) {}
  int64_t values() const { return kHeader + 4 * scales; }  // where they begin
  int64_t begin_of(int64_t rank) const { return std::min(rank * share, elements); }
  int64_t length_of(int64_t rank) const { return std::min(share, elements - begin_of(rank)); }

  int64_t elements;
  int64_t share;   // elements of each rank; the last ones have fewer, or none
  int64_t scales;  // of a share
  int64_t bytes;   // of a share
};

/// sign: a float for each part behind the first one, then the bits, by place in the bucket.
struct Sign {
  Sign(int64_t elements, int64_t parts)
      : head((parts + 1 + 3) / 4 * 16), bytes(head + (elements + 127) / 128 * 16) {}
  int64_t head;   // bytes before the bits
  int64_t bytes;  // of a bucket
};

}  // namespace trireme::codec_wire
