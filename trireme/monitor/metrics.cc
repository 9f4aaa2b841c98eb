// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/metrics.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/size_limit.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongestStartLine = 64 << 10;

std::string line_of(const Json& object) {
  // Bytes that are no UTF-8 (a hash never is, a name could be) are replaced, not thrown over.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string first_line(int fd) {
  std::string text(kLongestStartLine, '\0');
  ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? got : 0);
  return text.substr(0, text.find('\n'));
}

int schema_of(int fd, const std::string& path) {
  Json line = Json::parse(first_line(fd), nullptr, /*allow_exceptions=*/false);
  const bool ours = line.is_object() && line.contains("event") && line["event"] == "start" &&
                    line.contains("schema") && line["schema"].is_number_integer();
  check<UsageError>(
      ours,
      "{}: this file exists and is not a metrics file (its first line is no start event). Give "
      "--metrics another name, or remove it",
      path);
  return line["schema"].get<int>();
}

/// Where the last whole line ends.
off_t whole_lines(int fd, off_t size) {
  char block[4096];
  for (off_t end = size; end > 0;) {
    const off_t begin =
        end > static_cast<off_t>(sizeof block) ? end - static_cast<off_t>(sizeof block) : 0;
    const ssize_t got = ::pread(fd, block, end - begin, begin);
    for (ssize_t i = got - 1; i >= 0; --i)
      if (block[i] == '\n') return begin + i + 1;
    end = begin;
  }
  return 0;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, const RunStart& start, MetricsMode mode)
    : path_(path) {
  if (path == "-")
    fd_.reset(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  else
    fd_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  // A pipe that only takes writes.
  if (!fd_ && path != "-") fd_.reset(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  check<ResourceError>(static_cast<bool>(fd_), "{}: cannot write the metrics: {}", path,
                       errno_text());

  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) fail<ResourceError>("{}: {}", path, errno_text());
  is_file_ = S_ISREG(info.st_mode);
  if (path != "-" && is_file_) {
    // Kept until the file is closed. A file system without such locks is used without.
    check<UsageError>(::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK,
                      "{}: another run is writing its metrics there: give --metrics another name",
                      path);
  }
  if (path != "-" && is_file_ && info.st_size > 0) {
    const off_t keep = whole_lines(fd_.get(), info.st_size);
    if (keep > 0) {
      const int schema = schema_of(fd_.get(), path);
      check<UsageError>(mode == MetricsMode::fresh || schema <= kMetricsSchema,
                        "{}: metrics of schema {}, and this version writes schema {}. Resume with "
                        "the version that "
                        "wrote them, or give --metrics another name",
                        path, schema, kMetricsSchema);
    }
    if (::ftruncate(fd_.get(), mode == MetricsMode::fresh ? 0 : keep) != 0)
      fail<ResourceError>("{}: {}", path, errno_text());
  }
  Json line{{"event", "start"},
            {"schema", kMetricsSchema},
            {"world", start.world},
            {"seed", start.seed},
            {"config_hash", start.config_hash}};
  if (!start.device.empty()) line["device"] = start.device;
  write_line(line_of(line));
}

void MetricsFile::step(const StepMetrics& m) {
  Json line{{"step", m.step},
            {"loss", m.loss},
            {"grad_norm", m.grad_norm},
            {"lr", m.lr},
            {"step_ms", m.step_ms},
            {"samples_per_s", m.samples_per_s},
            {"tokens_per_s", m.tokens_per_s}};
  for (const auto& [name, value] : m.more) line[name] = value;
  write_line(line_of(line));
}

void MetricsFile::event(std::string_view name, int64_t step,
                        const std::vector<std::pair<std::string, double>>& fields) {
  Json line{{"event", name}, {"step", step}};
  for (const auto& [key, value] : fields) line[key] = value;
  write_line(line_of(line));
}

void MetricsFile::done(int64_t steps, const std::vector<std::pair<std::string, double>>& fields) {
  Json line{{"event", "done"}, {"steps", steps}};
  for (const auto& [key, value] : fields) line[key] = value;
  write_line(line_of(line));
  if (lost_ > 0) log_warn("{}: {} lines of the metrics are lost", path_, lost_);
}

void MetricsFile::write_line(const std::string& line) {
  if (!fd_) return;
  check<ResourceError>(may_grow(fd_.get(), line.size()),
                       "{}: cannot write the metrics: the file would become larger than this "
                       "process may write (ulimit -f)",
                       path_);
  // One write; the rest only where the system took less (a full pipe, or the last of a disk).
  for (size_t at = 0; at < line.size();) {
    const ssize_t n = ::write(fd_.get(), line.data() + at, line.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && !is_file_ && (errno == EPIPE || errno == EIO)) {
      log_warn("{}: the reader of the metrics is gone; the run continues without it", path_);
      return fd_.reset();
    }
    if (n < 0 && is_file_ && began_ && (errno == ENOSPC || errno == EDQUOT))
      return lose_line(at, errno);
    check<ResourceError>(n > 0, "{}: cannot write the metrics: {}", path_, errno_text());
    at += n;
  }
  began_ = true;
  if (lost_ == 0) return;
  log_warn("{}: there is room again; {} lines of the metrics are lost", path_, lost_);
  lost_ = 0;
}

// A reader sees whole lines only.
void MetricsFile::lose_line(size_t written, int error) {
  const off_t end = ::lseek(fd_.get(), 0, SEEK_END);
  if (written > 0 && end >= static_cast<off_t>(written)) {
    const bool cut = ::ftruncate(fd_.get(), end - static_cast<off_t>(written)) == 0;
    check<ResourceError>(cut, "{}: cannot write the metrics: {}", path_, errno_text());
  }
  if (lost_++ == 0)
    log_warn("{}: {}: the run continues, and its metrics are lost until there is room", path_,
             std::strerror(error));
}

std::string set_metrics_aside(const std::string& path) {
  struct stat info {};
  // A named pipe would keep who opens it waiting.
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)) return "";
  std::ifstream file(path, std::ios::binary);
  std::string line;
  bool ours = false, steps = false;
  for (bool first = true; !steps && std::getline(file, line); first = false) {
    if (first) ours = line.starts_with("{\"event\":\"start\"");
    if (!ours) return "";
    steps = line.starts_with("{\"step\":");
  }
  if (!steps) return "";
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  for (int i = 1;; ++i) {
    const std::string aside = folder + "metrics-old-" + std::to_string(i) + ".jsonl";
    if (::lstat(aside.c_str(), &info) == 0) continue;
    if (file_calls::rename(path, aside) != 0)
      fail<ResourceError>("cannot rename {} to {}: {}", path, aside, errno_text());
    return aside;
  }
}

}  // namespace trireme
