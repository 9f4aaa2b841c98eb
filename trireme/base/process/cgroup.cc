// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/process/cgroup.h"

#include <sys/stat.h>

#include <fstream>

namespace trireme {
namespace {

bool is_folder(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

}  // namespace

void walk_cgroups(const std::string& root, const std::string& controller,
                  const std::function<bool(const std::string&)>& visit) {
  std::ifstream membership(root + "/proc/self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    const size_t first = line.find(':');  // id:controllers:path
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool ours = controller.empty() ? controllers.empty()
                                         : ("," + controllers + ",").find("," + controller + ",") !=
                                               std::string::npos;
    if (!ours) continue;
    std::string path = line.substr(second + 1);
    std::string base = root + "/sys/fs/cgroup";
    if (!controller.empty())
      base += "/" + controller;
    else if (is_folder(base + "/unified"))
      base += "/unified";  // v1 and v2 side by side
    // Inside a container the tree may start at the container's own cgroup: the path of the host
    // does not exist.
    if (!is_folder(base + path)) path = "";
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    while (true) {
      if (!visit(base + (path == "/" ? "" : path))) return;
      if (path.empty() || path == "/") return;
      path.erase(path.rfind('/'));
    }
  }
}

}  // namespace trireme
