// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/worker/tasks.h"
#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

void write_whole(int fd, const std::string& line) {
  [[maybe_unused]] auto written =
      ::write(fd, line.data(), line.size());  // a log that cannot be written ends nothing
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

LogFile::LogFile(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  auto fd = std::make_shared<UniqueFd>(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  check<ResourceError>(static_cast<bool>(*fd), "cannot open {}: {}", path, errno_text());
  set_log_sink([fd](LogLevel level, std::string_view text) {
    static const char* const kLevels[] = {"debug", "info", "warning", "error"};
    write_whole(STDERR_FILENO, format_log_line(level, text) + "\n");
    const nlohmann::ordered_json line = {
        {"time", utc_now()}, {"level", kLevels[static_cast<int>(level)]}, {"text", text}};
    write_whole(fd->get(),
                line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  });
}

LogFile::~LogFile() { set_log_sink({}); }

}  // namespace trireme
