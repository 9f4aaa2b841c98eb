// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Which codec a bucket should travel in. Pure: what was measured in, an index out.
namespace trireme {

/// A call of b bytes a rank takes latency + b × seconds_per_byte.
struct LinkCost {
  double latency = 0, seconds_per_byte = 0;
};

/// Of two measured calls; none of the two comes out negative.
constexpr LinkCost link_cost(double small_bytes, double small_seconds, double large_bytes,
                             double large_seconds) {
  LinkCost link;
  const double more = large_seconds - small_seconds;
  link.seconds_per_byte = more > 0 ? more / (large_bytes - small_bytes) : 0;
  link.latency = small_seconds - link.seconds_per_byte * small_bytes;
  if (link.latency < 0) link.latency = 0;
  return link;
}

/// What a codec costs for one bucket.
struct CodecCost {
  int calls = 1;
  double bytes = 0;    // that a rank sends
  double seconds = 0;  // of encoding and decoding, on the slowest rank
  /// Σ of squares of what it left, over that of what it was given; on the rank where that is
  /// largest.
  double residual = 0;
};

/// As if nothing overlapped: where computing hides a call it hides every codec's alike.
constexpr double codec_seconds(const LinkCost& link, const CodecCost& cost) {
  return cost.calls * link.latency + cost.bytes * link.seconds_per_byte + cost.seconds;
}

/// The fastest codec that leaves at most `max_residual` of the energy; of equally fast ones the
/// first. codecs[0] is the plain one, which leaves nothing and is always allowed. A codec that
/// leaves (1−δ) ≤ max_residual of what it is given keeps the memory's energy below
/// 4(1−δ)/δ² of the largest gradient's (Karimireddy et al. 2019, lemma 3): 8 of it for 0.5.
inline size_t choose_codec(const LinkCost& link, const std::vector<CodecCost>& codecs,
                           double max_residual) {
  size_t best = 0;
  for (size_t c = 1; c < codecs.size(); ++c)
    if (codecs[c].residual <= max_residual &&
        codec_seconds(link, codecs[c]) < codec_seconds(link, codecs[best]))
      best = c;
  return best;
}

/// The bound on the memory's energy, in units of the largest gradient's.
constexpr double memory_bound(double max_residual) {
  const double delta = 1 - max_residual;
  return 4 * max_residual / (delta * delta);
}

}  // namespace trireme
