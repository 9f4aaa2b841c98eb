// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <vector>

namespace trireme::launch {

std::vector<pid_t> all_processes();
/// This process's children as /proc shows them, dead ones included.
std::vector<pid_t> children_of_this_process();
/// By SIGSTOP, a terminal or a debugger.
bool is_stopped(pid_t pid);
/// It is there, and not merely unreaped.
bool lives(pid_t pid);
/// How many living processes are in these process groups.
int living_in_groups(const std::vector<pid_t>& groups);

}  // namespace trireme::launch
