// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/step_files.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/output_file.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/steps/checksum.h"

namespace trireme {

void Collector::take(const std::string& name, IndexValue v) {
  check<UsageError>(!name.empty() && names_.emplace(name, true).second,
                    "checkpoint: the state names '{}' twice", name);
  held.values[name] = std::move(v);
}

void Collector::tensor(const Slice& slice, at::Tensor local) {
  const auto [at, fresh] = names_.emplace(slice.name, slice.is_whole());
  check<UsageError>(!slice.name.empty() && (fresh || (!at->second && !slice.is_whole())),
                    "checkpoint: the state names '{}' twice", slice.name);
  check<UsageError>(local.defined() && local.numel() == slice.numel(),
                    "checkpoint: '{}' has {} elements, its slice says {}", slice.name,
                    local.defined() ? local.numel() : 0, slice.numel());
  check<UsageError>(!safetensors_dtype_name(local.scalar_type()).empty(),
                    "checkpoint: '{}' is {}, a dtype that safetensors files do not hold",
                    slice.name, c10::toString(local.scalar_type()));
  if (same_.first_of(slice, local) != slice.name) return;
  held.tensors.push_back({slice, safetensors_dtype_name(local.scalar_type())});
  tensors.push_back(local.detach());
}

WriteOrders orders_for(const SavePlan& plan, size_t rank) {
  WriteOrders orders{plan.files, plan.writes[rank]};
  for (PlannedFile& file : orders.files)
    if (file.creator != rank) file.head.clear();
  return orders;
}

BytesOfWrite bytes_in(const Collector& state, const WriteOrders& orders) {
  return [&state, &orders, at_hand = state.tensors.size(), bytes = at::Tensor()](size_t i) mutable {
    const PlannedWrite& w = orders.writes[i];
    if (at_hand != w.tensor) {
      bytes = state.tensors[w.tensor].cpu().contiguous();
      at_hand = w.tensor;
    }
    return static_cast<const void*>(static_cast<const char*>(bytes.data_ptr()) + w.from);
  };
}

namespace {

// A block is still in the cache when it is written, unless a large piece goes past it.
void write_and_sum(OutputFile& file, const PlannedWrite& w, const char* from,
                   std::vector<uint64_t>* checksums) {
  constexpr int64_t kPage = OutputFile::kPage, kLarge = int64_t{8} << 20;
  const bool alike =
      reinterpret_cast<uintptr_t>(from) % kPage == static_cast<uint64_t>(w.at) % kPage;
  const int64_t piece = alike ? kLarge : CheckpointIndex::kBlock;
  int64_t summed = 0;
  for (int64_t done = 0; done < w.bytes;) {
    // Pieces end with a page of the file.
    const int64_t end = std::min(w.bytes, (w.at + done + piece) / kPage * kPage - w.at);
    while (summed < end) {
      const int64_t n = std::min(w.bytes - summed, CheckpointIndex::kBlock);
      checksums->push_back(Checksum::number_of(from + summed, static_cast<size_t>(n)));
      summed += n;
    }
    file.write_at(static_cast<uint64_t>(w.at + done), from + done, static_cast<size_t>(end - done));
    done = end;
  }
}

}  // namespace

std::vector<size_t> memory_layout(const WriteOrders& orders) {
  std::vector<size_t> offsets;
  size_t end = 0;
  for (const PlannedWrite& w : orders.writes) {
    const size_t in_page = static_cast<size_t>(w.at) % OutputFile::kPage;
    offsets.push_back(end +
                      (in_page + OutputFile::kPage - end % OutputFile::kPage) % OutputFile::kPage);
    end = offsets.back() + static_cast<size_t>(w.bytes);
  }
  offsets.push_back(end);
  return offsets;
}

std::vector<uint64_t> write_step_files(const std::string& folder, const WriteOrders& orders,
                                       const BytesOfWrite& bytes_of) {
  std::vector<uint64_t> checksums;
  size_t next = 0;
  for (size_t f = 0; f < orders.files.size(); ++f) {
    const PlannedFile& planned = orders.files[f];
    const bool writes = next < orders.writes.size() && orders.writes[next].file == f;
    if (planned.head.empty() && !writes) continue;
    OutputFile file(folder + "/" + planned.name, OutputFile::Others::write_too);
    file.go_direct();
    if (!planned.head.empty()) file.write_at(0, planned.head.data(), planned.head.size());
    for (; next < orders.writes.size() && orders.writes[next].file == f; ++next) {
      const PlannedWrite& w = orders.writes[next];
      write_and_sum(file, w, static_cast<const char*>(bytes_of(next)), &checksums);
    }
    file.finish();
  }
  return checksums;
}

void add_checksums(SavePlan& plan, size_t rank, const std::vector<uint64_t>& checksums) {
  size_t next = 0;
  for (const SavePlan::Blocks& blocks : plan.blocks[rank])
    for (size_t i = 0; i < blocks.count; ++i, ++next) {
      check<Corrupt>(next < checksums.size(), "checkpoint: rank {} sent too few checksums", rank);
      blocks.part->blocks.at(blocks.first + i) = checksums[next];
    }
  check<Corrupt>(next == checksums.size(), "checkpoint: rank {} sent too many checksums", rank);
}

void write_index(const std::string& folder, const CheckpointIndex& index) {
  const std::string text = index_text(index);
  OutputFile file(folder + "/" + CheckpointIndex::kFileName);
  file.write(text.data(), text.size());
  file.finish();
  fsync_path(folder);
}

}  // namespace trireme
