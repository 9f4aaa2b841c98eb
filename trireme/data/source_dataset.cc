// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/source_dataset.h"

#include <utility>
#include <vector>

#include "trireme/base/check.h"

namespace trireme {

SourceDataset::SourceDataset(std::shared_ptr<const DataSource> source, Collate collate)
    : source_(std::move(source)), collate_(std::move(collate)) {
  check<UsageError>(source_ != nullptr, "SourceDataset: there is no source");
}

torch::data::Example<> SourceDataset::get_batch(c10::ArrayRef<size_t> indices) {
  const std::vector<int64_t> ids(indices.begin(), indices.end());
  const int64_t size = source_->size();
  for (const int64_t id : ids)
    check<UsageError>(id >= 0 && id < size, "SourceDataset: there is no sample {} among {}", id,
                      size);
  MicroBatch batch = source_->get(ids);
  batch.samples = ids;
  if (collate_) collate_(batch);
  check<UsageError>(batch.input.defined() && batch.target.defined(),
                    "SourceDataset: a batch has no {}: the source or the collate function left it "
                    "out",
                    batch.input.defined() ? "target" : "input");
  return {batch.input, batch.target};
}

torch::optional<size_t> SourceDataset::size() const { return static_cast<size_t>(source_->size()); }

}  // namespace trireme
