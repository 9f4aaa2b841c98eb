// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/store/file/file_log.h"

// Who may enter a store's file that is there already. Pure: what the file says and who lives comes
// in, a verdict goes out.
namespace trireme::detail {

/// Whom a process says it is.
struct FileMember {
  std::string job_id;
  uint32_t attempt = 0;
  uint32_t world_size = 1;
  uint32_t rank = 0;
};

enum class FileVerdict {
  enter,
  come_again,  // an earlier group of this job is still leaving it
  take_over,  // nobody uses it: an earlier attempt of this job left it behind, or all left in order
  refused,
};
struct FileSeat {
  FileVerdict verdict = FileVerdict::enter;
  std::string why;  // what Timeout (come_again) or UsageError (refused) says
};

/// `lives(n)`: client n still holds its lock. `where` names the file.
FileSeat find_seat(const FileState& state, const FileMember& member,
                   const std::function<bool(uint32_t)>& lives, const std::string& where);

}  // namespace trireme::detail
