// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <fstream>
#include <map>

#include "trireme/base/log.h"
#include "trireme/mesh/gather_numbers.h"
#include "trireme/mesh/mesh.h"
#include "trireme/mesh/placement.h"

// Where ranks run, as far as a warning about placement needs it.
namespace trireme {
namespace {

/// FNV-1a; two hosts that collide cost a warning.
int64_t host_number() {
  std::string id;
  if (const char* given = std::getenv("TRIREME_HOST_ID"); given && *given)
    id = given;
  else
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  uint64_t h = 0xcbf29ce484222325;
  for (char c : id) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<int64_t>(h);
}

}  // namespace

std::vector<int> gather_hosts(Group group, CallSite site) {
  if (group.backend() == "local" || group.size() == 1)
    return std::vector<int>(static_cast<size_t>(group.size()), 0);
  std::map<int64_t, int> places;
  std::vector<int> hosts;
  for (int64_t number : detail::gather_numbers(group, host_number(), site))
    hosts.push_back(places.emplace(number, static_cast<int>(places.size())).first->second);
  return hosts;
}

std::string check_placement(const DeviceMesh& mesh, std::vector<int> hosts, const std::string& axis,
                            CallSite site) {
  if (hosts.empty()) hosts = gather_hosts(mesh.world(), site);
  const std::string text = placement_warning(mesh.shape(), hosts, axis);
  if (!text.empty() && mesh.world().rank() == 0) log_warn("{}", text);
  return text;
}

}  // namespace trireme
