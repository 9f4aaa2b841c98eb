// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save/early_writes.h"

#include <algorithm>
#include <map>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/tensor/file_view.h"

namespace trireme {
namespace {

size_t blocks_of(int64_t bytes) {
  return static_cast<size_t>((bytes + CheckpointIndex::kBlock - 1) / CheckpointIndex::kBlock);
}

}  // namespace

EarlyWrites::EarlyWrites(const std::string& folder, const Collector& state,
                         const WriteOrders& orders) {
  Span span("checkpoint", "write what lies in files");
  others_.files = orders.files;
  std::map<size_t, OutputFile*> open;
  for (const PlannedWrite& w : orders.writes) {
    const at::Tensor& t = state.tensors[w.tensor];
    const bool early = t.is_contiguous() && is_file_view(t);
    early_.push_back(early);
    bytes_.push_back(w.bytes);
    if (!early) {
      others_.writes.push_back(w);
      continue;
    }
    OutputFile*& file = open[w.file];
    if (!file) {
      files_.push_back(std::make_unique<OutputFile>(folder + "/" + orders.files[w.file].name,
                                                    OutputFile::Others::write_too));
      file = files_.back().get();
    }
    const char* from = static_cast<const char*>(t.data_ptr()) + w.from;
    for (int64_t done = 0; done < w.bytes;) {
      const int64_t n = std::min(w.bytes - done, CheckpointIndex::kBlock);
      checksums_.push_back(Checksum::number_of(from + done, static_cast<size_t>(n)));
      file->write_at(static_cast<uint64_t>(w.at + done), from + done, static_cast<size_t>(n));
      done += n;
    }
  }
}

void EarlyWrites::finish() {
  for (const auto& file : files_) file->finish();
}

std::vector<uint64_t> EarlyWrites::with(const std::vector<uint64_t>& checksums_of_others) const {
  std::vector<uint64_t> all;
  size_t early = 0, other = 0;
  for (size_t i = 0; i < bytes_.size(); ++i)
    for (size_t n = blocks_of(bytes_[i]); n > 0; --n)
      all.push_back(early_[i] ? checksums_.at(early++) : checksums_of_others.at(other++));
  return all;
}

}  // namespace trireme
