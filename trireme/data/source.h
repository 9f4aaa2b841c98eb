// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/data/batch.h"

namespace trireme {

/// Samples by number. get() is called from the loader's threads, possibly from several at once.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual int64_t size() const = 0;  // samples in an epoch
  /// The input, target and weight of these samples, in this order. All `ids` are below size().
  virtual MicroBatch get(const std::vector<int64_t>& ids) const = 0;
  /// The same in an epoch, which loaders call: for sources that show a sample differently each time
  /// (a part of a document, say), as a function of its id and the epoch alone, so that the number
  /// of ranks changes nothing. get() alone is epoch 0, which held-out data is always read in.
  virtual MicroBatch get_in_epoch(const std::vector<int64_t>& ids, int64_t /*epoch*/) const {
    return get(ids);
  }
  /// A description for the start line of a run: "corpus: 812 files, 94.1 MB, 367k windows of 256
  /// bytes".
  virtual std::string describe() const = 0;
  /// If not 0, get() must be called with exactly this many samples (it feeds a network compiled for
  /// a fixed shape, or reads ready-made batches from files), so the ranks' shares cannot vary
  /// (data/share_deal.h).
  virtual int64_t fixed_rows() const { return 0; }
  /// The number of tokens of each sample if samples are sequences of different lengths, else empty.
  virtual std::vector<int32_t> lengths() const { return {}; }
};

}  // namespace trireme
