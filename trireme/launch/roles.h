// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"

// Which of a job's workers are servers, and which are trainers. Pure.
namespace trireme::launch {

/// So many workers of one role; a job's, in the order of their ranks.
struct RoleCount {
  std::string name;
  int count = 0;
  bool operator==(const RoleCount&) const = default;
};

/// A worker's place among those of its role: its name is "server0".
struct Role {
  std::string name;  // "server"
  int rank = 0;
  int size = 1;
};

/// "server=1,trainer=2", as --role takes it. UsageError; `origin` names the flag.
TRIREME_API std::vector<RoleCount> parse_roles(std::string_view text, const std::string& origin);

/// "server=1,trainer=2".
TRIREME_API std::string roles_text(const std::vector<RoleCount>& roles);

/// All of them together.
TRIREME_API int workers_of(const std::vector<RoleCount>& roles);

/// The first ranks are of the first role. UsageError: there are fewer workers.
TRIREME_API Role role_of(const std::vector<RoleCount>& roles, int rank);

/// UsageError: the nodes of the job start another number of workers than the roles have.
TRIREME_API void check_roles(const std::vector<RoleCount>& roles,
                             const std::vector<int>& workers_of_nodes);

}  // namespace trireme::launch
