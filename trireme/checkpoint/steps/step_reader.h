// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/step_file.h"

namespace trireme {

/// Tensors of a step as if they lay there whole, whatever parts they were saved in. What is read is
/// not held against its checksums. Errors are those of StepFile.
class TRIREME_API StepReader {
 public:
  explicit StepReader(std::string folder);

  const std::string& folder() const { return folder_; }
  const CheckpointIndex& index() const { return index_; }
  /// Elements [begin, begin + count) of the tensor, row-major. Takes as much memory again.
  std::span<const uint8_t> read(const std::string& name, int64_t begin, int64_t count);

 private:
  const StepFile& file(const std::string& name);

  std::string folder_;
  CheckpointIndex index_;
  std::shared_ptr<OpenFiles> open_ = std::make_shared<OpenFiles>();
  std::map<std::string, StepFile> files_;
  std::vector<uint8_t> window_, scratch_;
};

}  // namespace trireme
