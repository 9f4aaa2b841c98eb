// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/task_options.h"

#include <errno.h>

#include "trireme/base/check.h"

namespace trireme {
namespace {

const char* this_program() { return program_invocation_short_name; }

}  // namespace

TaskOptions::TaskOptions(const Words& words) {
  check<UsageError>(words.size() % 2 == 0, "{}: an option without a value", this_program());
  for (size_t i = 0; i < words.size(); i += 2) {
    check<UsageError>(words[i].rfind("--", 0) == 0, "{}: '{}' is not an option", this_program(),
                      words[i]);
    values_[words[i].substr(2)] = words[i + 1];
  }
}

std::optional<std::string> TaskOptions::find(const std::string& name) const {
  auto it = values_.find(name);
  return it == values_.end() ? std::nullopt : std::optional(it->second);
}

std::string TaskOptions::get(const std::string& name) const {
  auto value = find(name);
  check<UsageError>(value.has_value(), "{}: --{} is missing", this_program(), name);
  return *value;
}

std::string TaskOptions::get(const std::string& name, const std::string& otherwise) const {
  return find(name).value_or(otherwise);
}

}  // namespace trireme
