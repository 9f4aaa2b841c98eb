// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/recorded.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme {

std::string recorded_steps_folder(const std::string& run_folder) {
  std::string text;
  try {
    text = read_file(run_folder + "/config.json", size_t{16} << 20);
  } catch (const Error&) {
    return "";
  }
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false,
                                          /*ignore_comments=*/true);
  if (!json.is_object() || !json.contains("checkpoint")) return "";
  const auto& section = json["checkpoint"];
  if (!section.is_object() || !section.contains("folder") || !section["folder"].is_string())
    return "";
  return section["folder"].get<std::string>();
}

}  // namespace trireme
