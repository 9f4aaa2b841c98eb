// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"

namespace trireme {

/// A key, or with ".*" all keys below one, that initialize() (train/engine.h) does not serve:
/// what it is about is the affair of the caller's loop, module, data or group.
struct NotOfEngine {
  const char* keys;
  const char* why;   // "…, and initialize() WHY"
  const char* fine;  // JSON: the value that asks for nothing; null: the default
};

/// THE list: every other key of the table that runs has its effect under initialize().
TRIREME_API const std::vector<NotOfEngine>& keys_not_of_engine();
/// Null for a key that initialize() serves.
TRIREME_API const NotOfEngine* not_of_engine(std::string_view path);
/// For each such key that is given and asks for something: where, what, what to do.
TRIREME_API std::vector<std::string> engine_refusals(const Config& config);
/// UsageError with the first of them.
TRIREME_API void check_engine_keys(const Config& config);

}  // namespace trireme
