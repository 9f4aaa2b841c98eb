// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/weight_map.h"

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/interop/boxes.h"
#include "trireme/interop/strict_json.h"

namespace trireme::interop {

std::map<std::string, std::string> read_weight_map(const std::string& folder,
                                                   const std::string& index) {
  constexpr int kMostDepth = 64;
  const std::string path = folder + "/" + index;
  const auto json = parse_strict_json(read_file(path), path, kMostDepth);
  const auto& map = json_member(json, "weight_map", path);
  check<Corrupt>(map.is_object(), "{}: weight_map is not an object", path);
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : map.items()) {
    files[name] = json_text(file, path, "a file of weight_map");
    path_inside(folder, files[name], path);
  }
  return files;
}

}  // namespace trireme::interop
