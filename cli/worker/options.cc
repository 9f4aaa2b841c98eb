// SPDX-License-Identifier: Apache-2.0
#include "cli/worker/tasks.h"
#include "trireme/base/check.h"
#include "trireme/config/sections/comm.h"

namespace trireme {

TaskOptions::TaskOptions(const Words& words) {
  check<UsageError>(words.size() % 2 == 0, "trireme-worker: an option without a value");
  for (size_t i = 0; i < words.size(); i += 2) {
    check<UsageError>(words[i].rfind("--", 0) == 0, "trireme-worker: '{}' is no option", words[i]);
    values_[words[i].substr(2)] = words[i + 1];
  }
}

InitOptions init_options(const Config& config) {
  const auto comm = config.section<CommSection>();
  InitOptions o;
  o.backend = comm.backend;
  if (config.applies("comm.across")) o.across = comm.across;
  if (config.applies("comm.check")) o.check = comm.check;
  o.timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(comm.timeout_s));
  return o;
}

std::optional<std::string> TaskOptions::find(const std::string& name) const {
  auto it = values_.find(name);
  return it == values_.end() ? std::nullopt : std::optional(it->second);
}

std::string TaskOptions::get(const std::string& name) const {
  auto value = find(name);
  check<UsageError>(value.has_value(), "trireme-worker: --{} is missing", name);
  return *value;
}

std::string TaskOptions::get(const std::string& name, const std::string& otherwise) const {
  return find(name).value_or(otherwise);
}

}  // namespace trireme
