// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/data/batch.h"

namespace trireme {

/// Samples by number. get() is called from the loader's threads, several at once.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual int64_t size() const = 0;  // samples in an epoch
  /// input, target and weight of these samples, in this order. `ids` are below size().
  virtual MicroBatch get(const std::vector<int64_t>& ids) const = 0;
  /// "corpus: 812 files, 94.1 MB, 367k windows of 256 bytes": for the start line of a run.
  virtual std::string describe() const = 0;
  /// Not 0: get() can be asked for exactly so many samples (a network compiled for a shape behind
  /// it, files of ready batches), so shares of ranks cannot vary (data/share_deal.h).
  virtual int64_t fixed_rows() const { return 0; }
  /// Tokens of each sample, where samples are sequences of different lengths; else empty.
  virtual std::vector<int32_t> lengths() const { return {}; }
};

}  // namespace trireme
