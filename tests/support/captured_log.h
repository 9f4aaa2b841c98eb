// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/log.h"

namespace trireme::testing {

/// What this process logs while it lives, instead of stderr.
class CapturedLog {
 public:
  CapturedLog() {
    set_log_sink([this](LogLevel, std::string_view text) {
      std::lock_guard lock(mutex_);
      lines_.emplace_back(text);
    });
  }
  ~CapturedLog() { set_log_sink({}); }
  CapturedLog(const CapturedLog&) = delete;

  std::vector<std::string> lines() const {
    std::lock_guard lock(mutex_);
    return lines_;
  }
  /// Those that have this part.
  std::vector<std::string> with(const std::string& part) const {
    std::vector<std::string> found;
    for (const std::string& line : lines())
      if (line.find(part) != std::string::npos) found.push_back(line);
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace trireme::testing
