// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/index.h"

namespace trireme {

/// Something that is wrong in a step folder.
struct StepFault {
  std::string file = {};    // its name in the folder
  std::string tensor = {};  // "": the file itself
  // Neighbouring blocks of the tensor's part in this file, of which each is wrong; -1: not of
  // blocks. And their bytes in the part.
  int64_t first_block = -1, last_block = -1;
  uint64_t begin = 0, end = 0;
  std::string what = {};  // a sentence, with the path
  bool unread = false;    // the bytes could not be read, so nothing is known of them
};

struct StepVerdict {
  std::optional<CheckpointIndex> index;  // if that can be read
  std::vector<StepFault> faults;
  uint64_t bytes_read = 0;
  bool good() const { return faults.empty(); }
  /// The first fault that is of the disk (or of a file's permissions) and not of the bytes; null:
  /// none.
  const StepFault* unread() const {
    for (const StepFault& fault : faults)
      if (fault.unread) return &fault;
    return nullptr;
  }
};

/// The index, and that its files are there and as long as it says.
TRIREME_API StepVerdict glance_at_step(const std::string& folder);

/// Reads every byte against the checksums, and goes on after a fault. UsageError for a step in a
/// newer version of the format.
TRIREME_API StepVerdict verify_step(const std::string& folder);

/// For whoever has found a fault in a step: ResourceError where its folder is gone, since then it
/// was deleted meanwhile, as a run does with its old ones, and says nothing about the disk.
TRIREME_API void check_not_deleted(const std::string& folder);

}  // namespace trireme
