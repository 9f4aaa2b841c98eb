// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "trireme/checkpoint/same_tensors.h"
#include "trireme/checkpoint/save_plan.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// What this rank's walk shows: handles of tensors (no bytes), copies of values. UsageError for a
/// name twice, memory that is not as its slice says, a dtype that files do not hold.
class Collector : public StateVisitor {
 public:
  void tensor(const Slice& slice, at::Tensor local) override;
  void value(const std::string& name, int64_t& v) override { take(name, v); }
  void value(const std::string& name, double& v) override { take(name, v); }
  void value(const std::string& name, std::string& v) override { take(name, v); }

  HeldState held;                   // what is shown under several names is held under the first
  std::vector<at::Tensor> tensors;  // of held.tensors, in their order

 private:
  void take_name(const std::string& name);
  void take(const std::string& name, IndexValue v) {
    take_name(name);
    held.values[name] = std::move(v);
  }
  std::set<std::string> names_;
  SameTensors same_;
};

/// The files that one rank wrote.
struct RankFiles {
  std::map<std::string, IndexFile> files;
  std::vector<std::string> checksums;  // of its tensors; "" for those that another rank writes
};

/// Bytes of the tensors that have a file.
uint64_t bytes_to_write(const Collector& state, const std::vector<std::string>& files);

/// Writes and syncs new files in `folder`: state's i-th tensor goes into files[i]. With
/// `whole_files`, model.safetensors and state.safetensors come to be in any case.
RankFiles write_rank_files(const std::string& folder, const Collector& state,
                           const std::vector<std::string>& files, bool whole_files);

/// Takes a rank's checksums into the index.
void add_rank_files(CheckpointIndex& index, const RankFiles& written, const HeldState& held,
                    const std::vector<std::string>& files);

/// Writes and syncs the index, and the folder.
void write_index(const std::string& folder, const CheckpointIndex& index);

}  // namespace trireme
