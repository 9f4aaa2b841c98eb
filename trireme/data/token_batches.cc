// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/token_batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/check.h"

namespace trireme {

TokenBatches::TokenBatches(const std::vector<int32_t>& lengths, const TokenBatchOptions& o)
    : seed_(o.seed) {
  check<UsageError>(
      o.max_tokens >= 1 && o.min_rows >= 1 && (o.max_rows == 0 || o.max_rows >= o.min_rows),
      "token batches: {} tokens, {} to {} sequences: no micro-batch can be so", o.max_tokens,
      o.min_rows, o.max_rows);
  const auto count = static_cast<int64_t>(lengths.size());
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  auto length = [&](int64_t i) { return int64_t{lengths[static_cast<size_t>(i)]}; };
  if (o.picking != TokenBatchOptions::Picking::dataloader && count > 0) {
    const Permutation shuffled(count, stable_hash({o.seed, uint64_t{0x746f6b656eULL}}));
    for (int64_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = shuffled(i);
  }
  if (o.picking == TokenBatchOptions::Picking::seqlen)
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return length(a) < length(b); });

  int64_t tokens = 0, padded = 0, most = 0;
  std::vector<int64_t> open;
  first_.push_back(0);
  auto close = [&] {
    if (static_cast<int64_t>(open.size()) < o.min_rows) {
      left_out_ += static_cast<int64_t>(open.size());
    } else {
      for (const int64_t i : open) tokens += length(i);
      padded += most * static_cast<int64_t>(open.size());
      order_.insert(order_.end(), open.begin(), open.end());
      first_.push_back(static_cast<int64_t>(order_.size()));
    }
    open.clear();
    most = 0;
  };
  for (const int64_t i : order) {
    check<UsageError>(length(i) >= 1 && length(i) <= o.max_tokens,
                      "sequence {} has {} tokens, and a micro-batch may have {} at most: raise "
                      "max_tokens or cut sequences shorter",
                      i, length(i), o.max_tokens);
    const auto rows = static_cast<int64_t>(open.size());
    if (rows > 0 && ((rows + 1) * std::max(most, length(i)) > o.max_tokens || rows == o.max_rows))
      close();
    open.push_back(i);
    most = std::max(most, length(i));
  }
  if (!open.empty()) close();
  if (padded > 0) padding_ = 1 - static_cast<double>(tokens) / static_cast<double>(padded);
}

std::vector<int64_t> TokenBatches::of(int64_t epoch, int64_t at) const {
  check<UsageError>(epoch >= 0 && at >= 0 && at < size(),
                    "token batches: there is no micro-batch {} of {} in epoch {}", at, size(),
                    epoch);
  const Permutation order(size(), stable_hash({seed_, static_cast<uint64_t>(epoch)}));
  const auto m = static_cast<size_t>(order(at));
  return {order_.begin() + first_[m], order_.begin() + first_[m + 1]};
}

double batch_lr_factor(std::string_view method, double samples, double nominal) {
  check<UsageError>(samples > 0 && nominal > 0, "a batch of {} samples, nominally {}", samples,
                    nominal);
  if (method == "none") return 1;
  if (method == "linear") return samples / nominal;
  check<UsageError>(method == "sqrt", "no way to scale a learning rate is called '{}'", method);
  return std::sqrt(samples / nominal);
}

}  // namespace trireme
