// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/permutation.h"

// Plan: sequences of different lengths → micro-batches by a budget of tokens. Pure. The names are
// those of DeepSpeed's data_efficiency.data_sampling.dynamic_batching.
namespace trireme {

struct TokenBatchOptions {
  int64_t max_tokens = 0;  // of a micro-batch: its sequences × the longest of them, as in memory
  int64_t min_rows = 1, max_rows = 0;  // sequences of a micro-batch; 0: no limit
  /// In which order sequences are taken: as the data has them, shuffled, or by length (least
  /// padding).
  enum class Picking { dataloader, random, seqlen } picking = Picking::dataloader;
  uint64_t seed = 42;
};

/// The micro-batches of an epoch and their order in each. Every sequence is in one of them, except
/// those of micro-batches below min_rows, which are left out.
class TRIREME_API TokenBatches {
 public:
  /// `lengths` by sequence number. UsageError, naming the sequence, where one alone is longer than
  /// the budget.
  TokenBatches(const std::vector<int32_t>& lengths, const TokenBatchOptions& options);

  int64_t size() const { return static_cast<int64_t>(first_.size()) - 1; }
  /// The sequences of micro-batch `at` of an epoch: each epoch has the same micro-batches, in
  /// another order.
  std::vector<int64_t> of(int64_t epoch, int64_t at) const;
  int64_t sequences() const { return static_cast<int64_t>(order_.size()); }
  int64_t left_out() const { return left_out_; }
  /// Tokens that are padding, as a part of all.
  double padding() const { return padding_; }

 private:
  std::vector<int64_t> order_;  // sequences, micro-batch behind micro-batch
  std::vector<int64_t> first_;  // of each micro-batch in order_, and the end
  uint64_t seed_;
  int64_t left_out_ = 0;
  double padding_ = 0;
};

/// What a step's learning rate is multiplied with, whose batch is not the nominal one:
/// "linear": samples / nominal; "sqrt": its root; "none": 1.
TRIREME_API double batch_lr_factor(std::string_view method, double samples, double nominal);

}  // namespace trireme
