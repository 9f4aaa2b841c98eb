// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"

namespace trireme::launch {

/// "NAME=value" that every process of a job carries in its environment; `folder` is the launcher's
/// private one.
std::string job_cookie(const std::string& folder);
/// Kills process groups, and every process of this user that carries `cookie`. How many of the
/// latter there were.
int kill_everything(const std::vector<pid_t>& groups, const std::string& cookie);

/// A small process that outlives a launcher killed with SIGKILL: it then kills the process groups
/// it was told of and every process that carries `cookie` ("NAME=value", unique to the job) in its
/// environment, removes `folder`, and ends. The workers themselves die by PR_SET_PDEATHSIG; this is
/// for what they started. In its own process group and deaf to signals of the terminal.
class TRIREME_API Keeper {
 public:
  /// Start it before other threads and sockets of the job exist.
  Keeper(std::string cookie, std::string folder);
  /// Says that all is well; waits for it to end.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  /// That it is gone (it was killed, or memory ran out) is one warning, here and in forget(): the
  /// job does not need it.
  void watch(pid_t process_group);
  /// The group is gone, and its number may come to mean somebody else's.
  void forget(pid_t process_group);
  pid_t pid() const { return pid_; }

 private:
  void send(pid_t order);
  pid_t pid_ = -1;
  bool is_gone_ = false;
  UniqueFd orders_;
};

}  // namespace trireme::launch
