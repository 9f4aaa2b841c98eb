// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/hydra.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

namespace trireme {

std::optional<std::string> process_stat(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::string hydra_job(int pid, const ProcessStat& stat) {
  constexpr int kGenerations = 64;  // parents' numbers may be used again while we read
  for (int i = 0; i < kGenerations && pid > 1; ++i) {
    const auto line = stat(pid);
    if (!line) return "";
    // "pid (name) state ppid …"; the name may hold blanks and parentheses; 22: the start time.
    const size_t open = line->find('('), close = line->rfind(')');
    if (open == std::string::npos || close == std::string::npos || close < open) return "";
    std::istringstream rest(line->substr(close + 1));
    std::vector<std::string> fields;
    for (std::string field; rest >> field;) fields.push_back(field);
    constexpr size_t kParent = 4 - 3, kStart = 22 - 3;
    if (fields.size() <= kStart) return "";
    if (line->substr(open + 1, close - open - 1) == "hydra_pmi_proxy")
      return fmt::format("hydra-{}-{}", pid, fields[kStart]);
    pid = std::atoi(fields[kParent].c_str());
  }
  return "";
}

std::string own_hydra_job() { return hydra_job(::getpid()); }

}  // namespace trireme
