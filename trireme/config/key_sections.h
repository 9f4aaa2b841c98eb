// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/keys.h"

// Inside config: the parts of the table of keys. Beside these, key_table.cc has its own.
namespace trireme::detail {

inline constexpr double kMany = 1e9;  // more of anything counted here is a slip
inline constexpr double kWide = 1e6;

/// A number of ours that means something only `when`.
inline KeyInfo number_when(const char* path, KeyType type, const char* value, double min,
                           double max, const char* when, const char* help) {
  return {.path = path,
          .type = type,
          .default_json = value,
          .min = min,
          .max = max,
          .when = when,
          .help = help};
}

/// A key of DeepSpeed's that changes nothing here.
inline KeyInfo without_effect(const std::string& path, const char* why) {
  return {.path = path, .deepspeed = true, .status = KeyStatus::without_effect, .why = why};
}

std::vector<KeyInfo> model_keys();
std::vector<KeyInfo> data_keys();
std::vector<KeyInfo> optimizer_keys();
std::vector<KeyInfo> scheduler_keys();

}  // namespace trireme::detail
