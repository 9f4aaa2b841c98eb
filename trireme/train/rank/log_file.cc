// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/rank/log_file.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/size_limit.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

// A log that cannot be written ends nothing.
void write_whole(int fd, const std::string& line) {
  if (!may_grow(fd, line.size())) return;
  [[maybe_unused]] auto written = ::write(fd, line.data(), line.size());
}

std::string utc_now() {
  const time_t now = ::time(nullptr);
  tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  ::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

struct LogFile::State {
  std::string path;
  UniqueFd fd;
  std::string before;  // lines that came before open()
};

LogFile::LogFile(const std::string& path) : state_(std::make_shared<State>()) {
  state_->path = path;
  set_log_sink([state = state_](LogLevel level, std::string_view text) {
    static const char* const kLevels[] = {"debug", "info", "warning", "error"};
    write_whole(STDERR_FILENO, format_log_line(level, text) + "\n");
    const nlohmann::ordered_json object = {
        {"time", utc_now()}, {"level", kLevels[static_cast<int>(level)]}, {"text", text}};
    const std::string line =
        object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    if (state->fd)
      write_whole(state->fd.get(), line);
    else
      state->before += line;
  });
}

void LogFile::open() {
  UniqueFd fd(::open(state_->path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  check<ResourceError>(static_cast<bool>(fd), "cannot open {}: {}", state_->path, errno_text());
  write_whole(fd.get(), state_->before);
  state_->before.clear();
  state_->fd = std::move(fd);
}

LogFile::~LogFile() { set_log_sink({}); }

}  // namespace trireme
