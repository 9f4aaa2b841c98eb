// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/subset.h"

#include <cmath>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/data/permutation.h"

namespace trireme {

std::vector<size_t> split_lengths(size_t size, const std::vector<double>& fractions) {
  double sum = 0;
  std::vector<size_t> lengths;
  for (const double f : fractions) {
    check<UsageError>(f >= 0 && f <= 1, "split_lengths: {} is no fraction of a data set", f);
    sum += f;
    lengths.push_back(static_cast<size_t>(std::floor(static_cast<double>(size) * f)));
  }
  check<UsageError>(std::abs(sum - 1) < 1e-9, "split_lengths: the fractions add up to {}, not to 1",
                    sum);
  size_t left = size - std::accumulate(lengths.begin(), lengths.end(), size_t{0});
  for (size_t i = 0; left > 0; ++i, --left) ++lengths[i % lengths.size()];
  return lengths;
}

std::vector<std::vector<size_t>> random_split(size_t size, const std::vector<size_t>& lengths,
                                              uint64_t seed) {
  const size_t sum = std::accumulate(lengths.begin(), lengths.end(), size_t{0});
  check<UsageError>(sum == size && size > 0,
                    "random_split: the lengths add up to {}, and there are {} samples", sum, size);
  const Permutation order(static_cast<int64_t>(size), stable_hash({stable_hash("split"), seed}));
  std::vector<std::vector<size_t>> parts;
  int64_t at = 0;
  for (const size_t length : lengths) {
    std::vector<size_t>& part = parts.emplace_back();
    for (size_t i = 0; i < length; ++i) part.push_back(static_cast<size_t>(order(at++)));
  }
  return parts;
}

}  // namespace trireme
