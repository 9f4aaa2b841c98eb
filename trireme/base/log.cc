// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>

#include "trireme/base/file/size_limit.h"
#include "trireme/base/rank_label.h"

// Process-wide by nature (design §4): one sink, one level. A line is one write(2), so that the
// lines of several ranks on one terminal do not mix; that is all we need of a logging library, and
// spdlog's 0.9 s per including file and its own threads are not.
namespace trireme {
namespace {

const char* const kNames[] = {"debug", "info", "warning", "error"};

int level_from_environment() {
  const char* text = std::getenv("TRIREME_LOG_LEVEL");
  if (!text) return -1;
  std::string_view v(text);
  if (v == "debug") return 0;
  if (v == "info") return 1;
  if (v == "warn" || v == "warning") return 2;
  if (v == "error") return 3;
  if (v == "off") return 4;
  return -1;
}

struct LogState {
  int environment = level_from_environment();
  std::atomic<int> level{environment >= 0 ? environment : static_cast<int>(LogLevel::warn)};
  std::mutex mutex;
  std::function<void(LogLevel, std::string_view)> sink;
};

LogState& log_state() {
  static LogState* s = new LogState;  // outlives static destructors that log
  return *s;
}

}  // namespace

bool log_enabled(LogLevel level) {
  return static_cast<int>(level) >= log_state().level.load(std::memory_order_relaxed);
}

void set_log_level(LogLevel level) {
  if (log_state().environment < 0) log_state().level = static_cast<int>(level);
}

void set_log_sink(std::function<void(LogLevel, std::string_view)> sink) {
  std::lock_guard lock(log_state().mutex);
  log_state().sink = std::move(sink);
}

std::string format_log_line(LogLevel level, std::string_view text) {
  std::string line = "trireme: ";
  if (level != LogLevel::info) line += std::string(kNames[static_cast<int>(level)]) + ": ";
  line += rank_label();
  line += text;
  return line;
}

void log_line(LogLevel level, std::string_view text) {
  if (!log_enabled(level) || level == LogLevel::off) return;
  LogState& s = log_state();
  std::lock_guard lock(s.mutex);
  if (s.sink) return s.sink(level, text);
  std::string line = format_log_line(level, text);
  line += '\n';
  // A line is not worth the end of the process (ulimit -f).
  if (!may_grow(STDERR_FILENO, line.size())) return;
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace trireme
