// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/open_files.h"
#include "trireme/checkpoint/steps/part_source.h"

namespace trireme {

/// Of a step folder. Corrupt when it is missing, damaged or of another step than the folder's name
/// says; UsageError for a newer version; ResourceError when it cannot be read.
TRIREME_API CheckpointIndex read_step_index(const std::string& folder);

/// What is wrong with a file of a step folder at first sight ("is missing", "has 3 bytes; the index
/// says 4"), or "". Of a step that is gone with its index: "was deleted while it was read".
/// ResourceError when it cannot be looked at.
TRIREME_API std::string fault_at_sight(const std::string& folder, const std::string& name,
                                       const IndexFile& expected);

/// One file of a step, read piece by piece, so that neither its size nor a disk that fails takes
/// the process along.
class TRIREME_API StepFile : public PartSource {
 public:
  /// Reads the header. Corrupt, naming the file, when that is not as the index says. The file is
  /// open while it is among those of `files` that were read last.
  StepFile(const std::string& folder, const std::string& name, const IndexFile& expected,
           std::shared_ptr<OpenFiles> files = std::make_shared<OpenFiles>());

  /// ResourceError with the system's reason, also for a file that has become shorter. Where the
  /// disk fails (EIO) it is asked a second time. Corrupt where the file was closed and is now
  /// another one, or gone.
  void read(uint64_t at, std::span<uint8_t> to) const override;
  /// The disk may begin.
  void will_read(uint64_t at, uint64_t bytes) const override;
  /// Where the file system can do it; else through the page cache.
  void read_pages(uint64_t at, std::span<uint8_t> to, uint64_t size) const override;
  bool is_on_disk() const override { return true; }
  /// What was read before comes from the page cache and, but for what has gone from there
  /// meanwhile, without the disk.
  void read_again(uint64_t at, std::span<uint8_t> to) const override;

 private:
  bool is_cached(uint64_t at, uint64_t size) const;
  std::shared_ptr<const UniqueFd> direct_descriptor() const;

  ReopenedFile file_;
  std::shared_ptr<OpenFiles> files_;
  const uint64_t size_;
  mutable std::once_flag opened_direct_;
  mutable std::optional<ReopenedFile> direct_;  // past the page cache; none where it cannot be
};

}  // namespace trireme
