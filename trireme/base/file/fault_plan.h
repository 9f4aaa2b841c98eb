// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/file/file_faults.h"

// The text of TRIREME_FILE_FAULTS, read.
namespace trireme::detail {

struct FileFault {
  enum Act { kill_before, kill_after, group_before, group_after, give_error, shorten, fail_sync };
  int64_t number = 0;
  bool onwards = false;
  std::string kind;  // "": by number
  Act act = give_error;
  int error = 0;
};

struct FaultPlan {
  std::vector<FileFault> faults;
  std::string only, count, record;
  int rank = -1;               // any
  int64_t bytes_a_second = 0;  // at most, of writes; 0: as fast as the disk is
  bool empty() const {
    return faults.empty() && count.empty() && record.empty() && bytes_a_second == 0;
  }
};

/// UsageError for text that it cannot read.
FaultPlan parse_fault_plan(const std::string& text);
/// Does the fault act at this call?
bool hits(const FileFault& fault, int64_t number, const FileCall& call);

}  // namespace trireme::detail
