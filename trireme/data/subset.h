// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/data/datasets/base.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/export.h"

// torch.utils.data's Subset and random_split for LibTorch's data sets.
namespace trireme {

/// The samples of a data set at these indices, in this order; an index may occur more than once.
/// It owns the data set that it is given (most are handles, and cheap to copy). Source:
/// torch.utils.data.Subset.
template <class Dataset>
class Subset
    : public torch::data::datasets::BatchDataset<Subset<Dataset>, typename Dataset::BatchType> {
 public:
  using BatchType = typename Dataset::BatchType;
  /// UsageError if it is empty or an index is not below the data set's size.
  Subset(Dataset dataset, std::vector<size_t> indices)
      : dataset_(std::move(dataset)), indices_(std::move(indices)) {
    const auto size = dataset_.size();
    if (indices_.empty()) throw UsageError("Subset: it has no samples");
    for (const size_t i : indices_)
      if (size && i >= *size)
        throw UsageError("Subset: there is no sample " + std::to_string(i) + " in a data set of " +
                         std::to_string(*size));
  }

  BatchType get_batch(c10::ArrayRef<size_t> request) override {
    std::vector<size_t> mapped;
    mapped.reserve(request.size());
    for (const size_t i : request) mapped.push_back(indices_.at(i));
    return dataset_.get_batch(mapped);
  }
  torch::optional<size_t> size() const override { return indices_.size(); }
  const std::vector<size_t>& indices() const { return indices_; }

 private:
  Dataset dataset_;
  std::vector<size_t> indices_;
};

/// Lengths of the parts of `size` samples by fractions that add up to 1, as torch's random_split
/// computes them: each is rounded down, and what is left goes to the first parts, one each.
/// UsageError if they do not add up to 1, or one is not in [0, 1].
TRIREME_API std::vector<size_t> split_lengths(size_t size, const std::vector<double>& fractions);

/// Indices for Subset: a shuffle of all samples (a pure function of their number and the seed, so
/// every rank has the same) cut into parts of these lengths. UsageError if they do not add up to
/// `size`. The order is ours, not the one that Python's random_split would draw.
TRIREME_API std::vector<std::vector<size_t>> random_split(size_t size,
                                                          const std::vector<size_t>& lengths,
                                                          uint64_t seed);

}  // namespace trireme
