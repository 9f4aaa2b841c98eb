// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/data/batch.h"
#include "trireme/data/source.h"

namespace trireme {

/// A DataSource (digits, files of MNIST, a corpus, your own) as a data set for LibTorch's loader,
/// whose batches are torch::data::Example<>: data is the source's input, target its target.
///
///   SourceDataset digits(make_digits(), [](MicroBatch& b) { b.input = … });
///   auto loader = torch::data::make_data_loader(digits, sampler, 64);
///
/// `collate` may change a batch before the loop gets it, as a collate_fn of Python's DataLoader
/// does: b.samples holds the samples' ids, which augment() is keyed by. It runs on the loader's
/// threads, from several at once. UsageError if afterwards input or target is undefined.
class TRIREME_API SourceDataset
    : public torch::data::datasets::BatchDataset<SourceDataset, torch::data::Example<>> {
 public:
  using Collate = std::function<void(MicroBatch&)>;
  explicit SourceDataset(std::shared_ptr<const DataSource> source, Collate collate = {});
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) override;
  torch::optional<size_t> size() const override;

 private:
  std::shared_ptr<const DataSource> source_;
  Collate collate_;
};

}  // namespace trireme
