// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// The rules of --map: {old, new}. UsageError.
std::vector<std::pair<std::string, std::string>> map_rules(const std::vector<std::string>& texts);

/// "500MB" (powers of 1000), "2GiB" (of 1024), "1000" (bytes). UsageError.
uint64_t size_of_text(const std::string& text);

}  // namespace trireme
