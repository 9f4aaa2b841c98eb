// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>

#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/step_file.h"

namespace trireme {

/// Where a part's bytes are.
struct PartBytes {
  const StepFile* file;
  uint64_t begin, size;  // in the file
};

/// A step folder: its index, of which only names with the prefix stay, and those files that were
/// opened. What is opened agrees with the index. Errors are Corrupt, naming the file; ResourceError
/// where it cannot be read.
class OpenedStep {
 public:
  OpenedStep(std::string folder, std::string prefix);

  const std::string& folder() const { return folder_; }
  const CheckpointIndex& index() const { return index_; }

  /// Gives tensors whose names begin with `from` names that begin with `to`. UsageError for none,
  /// and for two of one name.
  void rename(const std::string& from, const std::string& to);

  /// Opens these files and compares their headers with the index.
  void open(const std::set<std::string>& files);
  /// Of an opened file.
  PartBytes bytes(const IndexTensor& tensor, const IndexPart& part) const;

 private:
  std::string folder_, prefix_;
  CheckpointIndex index_;
  std::map<std::string, size_t> counts_;  // tensors in each file
  std::map<std::string, StepFile> files_;
};

}  // namespace trireme
