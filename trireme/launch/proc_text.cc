// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/proc_text.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "trireme/launch/text.h"

namespace trireme::launch {
namespace {

bool is_folder(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

}  // namespace

std::optional<std::string> read_if_there(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void walk_cgroups(const std::string& root, const std::string& controller,
                  const std::function<bool(const std::string&)>& visit) {
  auto membership = read_if_there(root + "/proc/self/cgroup");
  if (!membership) return;
  for (auto line : split(*membership, '\n')) {
    auto fields = split(line, ':');  // id:controllers:path
    if (fields.size() < 3) continue;
    bool ours = controller.empty() && fields[1].empty();
    for (auto name : split(fields[1], ',')) ours |= !controller.empty() && name == controller;
    if (!ours) continue;
    std::string path(line.substr(fields[0].size() + fields[1].size() + 2));
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

}  // namespace trireme::launch
