// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/interop/safetensors_header.h"

namespace trireme {

/// Of a step folder. Corrupt when it is missing, damaged or of another step than the folder's name
/// says; UsageError for a newer version; ResourceError when it cannot be read.
TRIREME_API CheckpointIndex read_step_index(const std::string& folder);

/// What is wrong with a file of a step folder at first sight ("is missing", "has 3 bytes; the index
/// says 4"), or "". ResourceError when it cannot be looked at.
TRIREME_API std::string fault_at_sight(const std::string& folder, const std::string& name,
                                       const IndexFile& expected);

/// One file of a step, read piece by piece, so that neither its size nor a disk that fails takes
/// the process along.
class TRIREME_API StepFile {
 public:
  /// Reads the header. Corrupt, naming the file, when that is not as the index says.
  StepFile(const std::string& folder, const std::string& name, const IndexFile& expected);

  const std::string& path() const { return path_; }
  uint64_t head_size() const { return header_.data; }
  size_t count() const { return header_.arrays.size(); }
  /// The bytes of a part. Corrupt when they are not in the file as the index says.
  const interop::NamedArray& find(const IndexPart& part, const std::string& dtype) const;
  /// ResourceError with the system's reason, also for a file that has become shorter. Where the
  /// disk fails (EIO) it is asked a second time. Threads may read together.
  void read(uint64_t at, std::span<uint8_t> to) const;
  /// These bytes are read soon: the disk may begin.
  void will_read(uint64_t at, uint64_t bytes) const;
  /// As read(), for what was read before: it comes from the page cache and, but for what has gone
  /// from there meanwhile, without the disk.
  void read_again(uint64_t at, std::span<uint8_t> to) const;

 private:
  std::string path_;
  UniqueFd fd_;
  interop::SafetensorsHeader header_;
  std::map<std::string, size_t> by_name_;
};

}  // namespace trireme
