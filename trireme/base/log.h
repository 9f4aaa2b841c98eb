// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/export.h"

// Log lines. They go to stderr ("trireme: warning: …"), or to the sink that the program installed;
// never to stdout. TRIREME_LOG_LEVEL = debug | info | warn | error | off (default warn for a
// library, info for our binaries). Safe from any thread.
namespace trireme {

enum class LogLevel { debug, info, warn, error, off };

TRIREME_API void log_line(LogLevel level, std::string_view text);
TRIREME_API bool log_enabled(LogLevel level);
TRIREME_API void set_log_level(LogLevel level);  // unless TRIREME_LOG_LEVEL is set, which wins
/// "trireme: warning: [rank 1] TEXT", as it stands on stderr.
TRIREME_API std::string format_log_line(LogLevel level, std::string_view text);
/// Replaces stderr; an empty function restores it. Called with the level and the text (no newline).
TRIREME_API void set_log_sink(std::function<void(LogLevel, std::string_view)> sink);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(text, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::debug, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::info, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::warn, text, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
  log(LogLevel::error, text, std::forward<Args>(args)...);
}

}  // namespace trireme
