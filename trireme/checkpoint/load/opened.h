// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "trireme/checkpoint/load/foreign_weights.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/open_files.h"
#include "trireme/checkpoint/steps/part_source.h"
#include "trireme/checkpoint/steps/snapshot/held_step.h"

namespace trireme {

/// Where a part's bytes are.
struct PartBytes {
  const PartSource* file;
  uint64_t begin, size;  // in the file
};

/// A step folder, what ranks hold of a step in memory, or weights in Python's files: its index, of
/// which only names with the prefix stay, and those files that were opened: their headers, and a
/// bounded number of descriptors. What is opened agrees with the index. Errors are Corrupt, naming
/// the file; ResourceError where it cannot be read.
class OpenedStep {
 public:
  OpenedStep(std::string folder, std::string prefix);
  OpenedStep(interop::WeightSource source, std::string prefix);
  OpenedStep(std::shared_ptr<const HeldStep> step, std::string prefix);

  const std::string& folder() const { return folder_; }
  const CheckpointIndex& index() const { return index_; }

  /// Gives tensors whose names begin with `from` names that begin with `to`. UsageError for none,
  /// and for two of one name.
  void rename(const std::string& from, const std::string& to);
  /// "FOLDER: tensor 'name'", for messages.
  std::string described(const std::string& name) const;
  bool same_values(const std::string& a, const std::string& b) const;
  /// What to say of how the names of Python's files were taken.
  std::vector<std::string> notes() const;

  /// Opens these files and compares their headers with the index.
  void open(const std::set<std::string>& files);
  /// Of an opened file.
  PartBytes bytes(const IndexTensor& tensor, const IndexPart& part) const;
  /// Weights in Python's files, which have no blocks with checksums of ours.
  bool is_foreign() const { return foreign_ != nullptr; }
  /// Corrupt where a file of Python's has a checksum of the part that does not fit.
  void verify_foreign(const IndexPart& part) const { foreign_->verify(part); }

 private:
  void take(CheckpointIndex index);

  std::string folder_, prefix_;
  CheckpointIndex index_;
  std::map<std::string, size_t> counts_;  // tensors in each file
  std::shared_ptr<OpenFiles> open_files_;
  std::map<std::string, std::unique_ptr<PartSource>> files_;
  std::shared_ptr<const HeldStep> held_;     // null for a folder
  std::unique_ptr<ForeignWeights> foreign_;  // null for a step
};

}  // namespace trireme
