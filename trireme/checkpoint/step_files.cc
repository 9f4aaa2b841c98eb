// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/step_files.h"

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/base/output_file.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme {

void Collector::take_name(const std::string& name) {
  check<UsageError>(!name.empty() && names_.insert(name).second,
                    "checkpoint: the state names '{}' twice", name);
}

void Collector::tensor(const Slice& slice, at::Tensor local) {
  take_name(slice.name);
  check<UsageError>(local.defined() && local.numel() == slice.numel(),
                    "checkpoint: '{}' has {} elements, its slice says {}", slice.name,
                    local.defined() ? local.numel() : 0, slice.numel());
  check<UsageError>(!safetensors_dtype_name(local.scalar_type()).empty(),
                    "checkpoint: '{}' is {}, a dtype that safetensors files do not hold",
                    slice.name, c10::toString(local.scalar_type()));
  if (same_.first_of(slice, local) != slice.name) return;
  held.tensors.push_back({slice, safetensors_dtype_name(local.scalar_type())});
  tensors.push_back(local.detach().reshape(slice.lengths));
}

uint64_t bytes_to_write(const Collector& state, const std::vector<std::string>& files) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < files.size(); ++i)
    if (!files[i].empty()) bytes += state.tensors[i].nbytes();
  return bytes;
}

RankFiles write_rank_files(const std::string& folder, const Collector& state,
                           const std::vector<std::string>& files, bool whole_files) {
  static const std::map<std::string, std::string> kMetadata{
      {"format", "pt"}};  // stock readers ask for it
  std::map<std::string, NamedTensors> contents;
  if (whole_files)
    contents = {{CheckpointIndex::kModelFile, {}}, {CheckpointIndex::kStateFile, {}}};
  auto key = [&](size_t i) { return place_of(state.held.tensors[i].slice.name).key; };
  for (size_t i = 0; i < files.size(); ++i)
    if (!files[i].empty()) contents[files[i]].emplace_back(key(i), state.tensors[i]);

  RankFiles written;
  written.checksums.resize(files.size());
  for (auto& [file, tensors] : contents) {
    const auto receipt = write_safetensors(folder + "/" + file, std::move(tensors), kMetadata);
    written.files[file] = {receipt.size, receipt.head_checksum};
    for (size_t i = 0; i < files.size(); ++i)
      if (files[i] == file) written.checksums[i] = receipt.tensor_checksums.at(key(i));
  }
  return written;
}

void add_rank_files(CheckpointIndex& index, const RankFiles& written, const HeldState& held,
                    const std::vector<std::string>& files) {
  check<Corrupt>(files.size() == held.tensors.size() && written.checksums.size() == files.size(),
                 "checkpoint: a rank answered with {} checksums for {} tensors",
                 written.checksums.size(), files.size());
  index.files.insert(written.files.begin(), written.files.end());
  for (size_t i = 0; i < files.size(); ++i)
    for (IndexPart& part : index.tensors.at(held.tensors[i].slice.name).parts)
      if (!files[i].empty() && part.file == files[i]) part.xxh3 = written.checksums[i];
}

void write_index(const std::string& folder, const CheckpointIndex& index) {
  const std::string text = index_text(index);
  OutputFile file(folder + "/" + CheckpointIndex::kFileName);
  file.write(text.data(), text.size());
  file.finish();
  fsync_path(folder);
}

}  // namespace trireme
