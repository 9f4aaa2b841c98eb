// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/export.h"

// The command line of whatever takes configurations, beside the launcher's flags.
namespace trireme {

/// A flag that a command has besides --set and --help.
struct OwnFlag {
  enum Takes { nothing, a_value, perhaps_a_value };
  std::string name;  // "--run-dir", also written --run_dir
  Takes takes = a_value;
  std::function<void(const std::string& value)> set;  // "" where it has none
  /// Of perhaps_a_value: is the next word its value? "--flag=VALUE" always is.
  std::function<bool(const std::string& word)> is_value = {};
  std::string key = {};  // not empty: it is short for --set KEY=VALUE, and `set` is not called
};

struct ConfigWords {
  std::vector<std::string> files, sets;
  bool help = false;  // and then nothing behind it was read
};

/// `words` are those that are not the launcher's. Calls `set` of each flag that is given.
/// UsageError that begins with `name`, for an unknown flag or a value that is missing or too many;
/// `help` is what the user types for a list ("trireme train --help").
TRIREME_API ConfigWords read_config_words(const std::string& name, const std::string& help,
                                          const std::vector<OwnFlag>& flags,
                                          const std::vector<std::string>& words);

}  // namespace trireme
