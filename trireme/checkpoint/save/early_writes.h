// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/output_file.h"
#include "trireme/checkpoint/step_files.h"

namespace trireme {

/// Of the orders of a rank that goes on with its state while they are carried out: the writes of
/// what lies in a file (tensor/file_view.h). A copy of it in memory would be what its owner avoids,
/// so it is written at once, from one file to the other, block by block.
class EarlyWrites {
 public:
  /// Writes them, and does not wait for the disk. ResourceError.
  EarlyWrites(const std::string& folder, const Collector& state, const WriteOrders& orders);

  /// The orders without them.
  const WriteOrders& others() const { return others_; }
  /// Syncs what was written. ResourceError.
  void finish();
  /// The checksums of all writes in their order, from those of the others.
  std::vector<uint64_t> with(const std::vector<uint64_t>& checksums_of_others) const;

 private:
  WriteOrders others_;
  std::vector<int64_t> bytes_;  // of all writes
  std::vector<bool> early_;     // of all writes
  std::vector<uint64_t> checksums_;
  std::vector<std::unique_ptr<OutputFile>> files_;
};

}  // namespace trireme
