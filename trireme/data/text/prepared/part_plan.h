// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme {

/// The parts in which a file of questions is prepared. Pure: the same on every rank. A part is what
/// one process does at a time, so there are enough of them for all ranks of a host, and few enough
/// that a file of 17 GB has some hundred; its pieces are held in memory while it is made.
struct PartPlan {
  uint64_t bytes = 0;       // of the file
  uint64_t part_bytes = 1;  // of each part but the last

  /// `divisible`: lines, each of which belongs to the part in which it begins; else one part.
  /// `wanted`: bytes of a part; 0: these are chosen.
  static PartPlan of(uint64_t bytes, bool divisible, uint64_t wanted = 0) {
    constexpr uint64_t kLeast = uint64_t{4} << 20, kMost = uint64_t{64} << 20, kParts = 16;
    if (!divisible) return {bytes, std::max<uint64_t>(1, bytes)};
    if (wanted > 0) return {bytes, wanted};
    return {bytes, std::clamp(bytes / kParts, kLeast, kMost)};
  }
  uint64_t parts() const { return std::max<uint64_t>(1, (bytes + part_bytes - 1) / part_bytes); }
  uint64_t begin(uint64_t part) const { return std::min(bytes, part * part_bytes); }
  uint64_t end(uint64_t part) const { return std::min(bytes, (part + 1) * part_bytes); }
};

}  // namespace trireme
