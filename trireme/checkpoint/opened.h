// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "trireme/checkpoint/foreign_weights.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/steps/index.h"

namespace trireme {

/// A step folder, or weights in Python's files: its index, of which only names with the prefix
/// stay, and those files that were opened. What is opened agrees with the index. Errors are
/// Corrupt, naming the file.
class OpenedStep {
 public:
  OpenedStep(std::string folder, std::string prefix);
  OpenedStep(interop::WeightSource source, std::string prefix);

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

  /// Maps these files and compares their headers with the index.
  void open(const std::set<std::string>& files);
  /// All that the index lists.
  void open_all();
  /// Of an opened file. Of Python's files perhaps only valid until the next call.
  std::span<const uint8_t> bytes(const IndexPart& part) const;
  /// Reads the blocks of the part that bytes [begin, end) are in, and compares their checksums.
  void verify(const IndexPart& part, uint64_t begin, uint64_t end) const;
  /// All of the part.
  void verify(const IndexPart& part) const { verify(part, 0, bytes(part).size()); }

 private:
  std::string folder_, prefix_;
  CheckpointIndex index_;
  std::map<std::string, size_t> counts_;  // tensors in each file
  std::map<std::string, SafetensorsFile> files_;
  std::unique_ptr<ForeignWeights> foreign_;  // null for a step
};

}  // namespace trireme
