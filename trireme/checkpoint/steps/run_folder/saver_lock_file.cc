// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/saver_lock_file.h"

#include <charconv>
#include <random>
#include <sstream>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/checkpoint/steps/run_folder/saver_lock.h"

namespace trireme {
namespace {

constexpr const char* kFirstLine = "trireme saving lock, version 1";

std::string token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string described(const std::string& text) {
  const auto holder = read_saver_lock(text);
  return holder ? fmt::format("process {} on {}", holder->pid, holder->host)
                : "a process that its file does not name";
}

}  // namespace

std::string saver_lock_text(const ProcessId& p, const std::string& token) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n", kFirstLine, p.host, p.boot, p.pid_space, p.pid,
                     p.start, token);
}

std::optional<ProcessId> read_saver_lock(const std::string& text) {
  std::istringstream lines(text);
  std::string first, pid, start;
  ProcessId p;
  auto number = [](const std::string& digits, int64_t& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  const bool whole = std::getline(lines, first) && std::getline(lines, p.host) &&
                     std::getline(lines, p.boot) && std::getline(lines, p.pid_space) &&
                     std::getline(lines, pid) && std::getline(lines, start);
  if (!whole || first != kFirstLine || !number(pid, p.pid) || !number(start, p.start) || p.pid <= 0)
    return {};
  return p;
}

bool saver_lock_file_is_free(const std::string& path, Duration silence, std::string* holder) {
  const auto seen = LockFile::look(path);
  if (!seen) return true;
  const auto who = read_saver_lock(seen->text);
  const Presence presence = who ? presence_of(*who) : Presence::elsewhere;
  if (presence == Presence::alive ||
      (presence != Presence::dead && LockFile::changes(path, *seen, silence))) {
    if (holder) *holder = who == own_process_id() ? SaverLock::kThisProcess : described(seen->text);
    return false;
  }
  log_warn("{} was left by {}, which is gone", path, described(seen->text));
  LockFile::take_away(path, seen->text, silence);
  return true;
}

std::unique_ptr<LockFile> take_saver_lock_file(const std::string& path, Duration beat,
                                               Duration silence, std::string* holder) {
  const std::string text = saver_lock_text(own_process_id(), token());
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (auto file = LockFile::try_make(path, text, beat, described)) return file;
    if (!saver_lock_file_is_free(path, silence, holder)) return nullptr;
  }
  if (holder) *holder = "one of many that try";
  return nullptr;
}

}  // namespace trireme
