// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/base/fd.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/safetensors_head.h"
#include "trireme/checkpoint/steps/snapshot/snapshot_format.h"

// Snapshots as workers leave them, made without LibTorch: two ranks, of which rank 0 holds the
// first half of model.w and rank 1 the second.
namespace trireme::test {

/// Memory without a name; `seals` 0: none.
inline UniqueFd memory_of(const std::string& bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("memfd");
  if (seals) ::fcntl(fd.get(), F_ADD_SEALS, seals);
  return fd;
}

struct PretendWorker {
  int rank = 0, ranks = 2;
  std::string run_dir = "/run";
  int64_t step = 7, keep = 2, numel = 4;
  std::string save = ".tmp-step-00000007-new-1-0badcafe";
  bool complete = true, partial = false, sums = false;
  float value = 1;
  std::optional<std::string> latest;
  bool resumes = false;

  std::string file(int of) const { return "model-rank0000" + std::to_string(of) + ".safetensors"; }
  std::string head(int of) const {
    const std::string offsets = "{\"w\":{\"saved_offsets\":[" + std::to_string(of * numel) + "]}}";
    return safetensors_head(
        {{"w", "F32", {numel}}},
        {{"format", "pt"}, {"DCP_VERSION", "1.0"}, {"DCP_SHARDING_INFO", offsets}}, "test");
  }
  std::string data() const {
    const std::vector<float> list(static_cast<size_t>(numel), value + static_cast<float>(rank));
    return {reinterpret_cast<const char*>(list.data()), list.size() * sizeof(float)};
  }
  size_t blocks() const { return blocks_in_write(numel * 4); }
  std::string index() const {
    CheckpointIndex index;
    IndexTensor& t = index.tensors["model.w"];
    t.dtype = "F32";
    for (int of = 0; of < ranks; ++of) {
      t.parts.push_back({{"model.w", {numel * ranks}, {of * numel}, {numel}}, file(of), {}});
      t.parts.back().blocks.resize(blocks());
      index.files[file(of)] = {head(of).size() + static_cast<uint64_t>(numel) * 4,
                               Checksum::of(head(of).data(), head(of).size())};
    }
    return index_text(index);
  }
  SnapshotLabel label() const {
    WriteOrders orders;
    for (int of = 0; of < ranks; ++of)
      orders.files.push_back({file(of), of == rank ? head(of) : "", 0, 0});
    orders.writes.push_back(
        {0, 0, static_cast<size_t>(rank), static_cast<int64_t>(head(rank).size()), numel * 4});
    SnapshotLabel label(orders, rank == 0 ? index() : "");
    SnapshotNote note;
    note.save = save, note.run_dir = run_dir, note.step = step, note.rank = rank;
    note.world = ranks, note.keep = keep, note.partial = partial, note.layout = "test";
    note.latest = latest, note.resumes = resumes;
    if (rank == 0) {
      note.values["train.step"] = SnapshotValue::from(IndexValue(step));
      note.values["train.note"] = SnapshotValue::from(IndexValue(std::string("a")));
    }
    label.set_note(note);
    return label;
  }
  std::string bytes() const {
    const SnapshotLabel text = label();
    std::string memory(text.layout().size, '\0');
    auto* begin = reinterpret_cast<uint8_t*>(memory.data());
    text.put_into(begin, 0);
    const std::string written = data();
    std::memcpy(begin + text.layout().data_at + text.offsets()[0], written.data(), written.size());
    if (sums) {
      std::vector<uint64_t> list;
      for (size_t done = 0; done < written.size(); done += CheckpointIndex::kBlock)
        list.push_back(Checksum::number_of(
            written.data() + done,
            std::min(written.size() - done, static_cast<size_t>(CheckpointIndex::kBlock))));
      put_checksums(begin, text.layout(), list);
    }
    if (complete) mark_snapshot(begin, true);
    return memory;
  }
};

}  // namespace trireme::test
