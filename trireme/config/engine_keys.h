// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"

namespace trireme {

/// A key, or with ".*" all keys below one, that initialize() (train/engine.h) does not support,
/// because it concerns the caller's loop, module, data or group.
struct NotOfEngine {
  const char* keys;
  const char* why;   // "…, and initialize() WHY"
  const char* fine;  // JSON: the value that requests nothing; null: the default
};

/// The complete list: every other supported key of the table has its effect under initialize().
TRIREME_API const std::vector<NotOfEngine>& keys_not_of_engine();
/// Returns null for a key that initialize() supports.
TRIREME_API const NotOfEngine* not_of_engine(std::string_view path);
/// Returns a sentence for each such key that is given and requests something: where, what, what to
/// do.
TRIREME_API std::vector<std::string> engine_refusals(const Config& config);
/// Throws UsageError with the first of them.
TRIREME_API void check_engine_keys(const Config& config);

}  // namespace trireme
