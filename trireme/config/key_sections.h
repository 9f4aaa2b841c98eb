// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/keys.h"

// Inside config: the parts of the table of keys. Beside these, key_table.cc has its own.
namespace trireme::detail {

inline constexpr double kMany = 1e9;  // more of anything counted here is a slip
inline constexpr double kWide = 1e6;

std::vector<KeyInfo> model_keys();
std::vector<KeyInfo> data_keys();
std::vector<KeyInfo> optimizer_keys();
std::vector<KeyInfo> scheduler_keys();

}  // namespace trireme::detail
