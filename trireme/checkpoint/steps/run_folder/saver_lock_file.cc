// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/run_folder/saver_lock_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <random>
#include <sstream>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/log.h"
#include "trireme/base/output_file.h"

namespace trireme {
namespace {

constexpr const char* kFirstLine = "trireme saving lock, version 1";
constexpr size_t kLongest = 4096;

std::string token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

/// What the file says, and when it was changed by the server's clock.
struct Seen {
  std::string text;
  int64_t changed_ns = 0;
  bool operator==(const Seen&) const = default;
};

/// Nothing: there is no such file. It is opened anew each time, so that an NFS client asks.
std::optional<Seen> look(const std::string& path) {
  UniqueFd fd(file_calls::open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    const int error = errno;
    check<ResourceError>(error == ENOENT || error == ESTALE, "cannot read {}: {}", path,
                         errno_text(error));
    return {};
  }
  Seen seen;
  seen.text.resize(kLongest);
  const ssize_t n = file_calls::read(fd.get(), seen.text.data(), seen.text.size());
  struct stat info {};
  const bool known = n >= 0 && file_calls::fstat(fd.get(), &info) == 0;
  if (!known && errno == ESTALE) return {};
  check<ResourceError>(known, "cannot read {}: {}", path, errno_text());
  seen.text.resize(static_cast<size_t>(n));
  seen.changed_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return seen;
}

/// False: one is there already. The name appears with all of its text.
bool make(const std::string& path, const std::string& text) {
  const std::string own = path + "." + token();
  {
    OutputFile file(own);
    file.write(text.data(), text.size());
    file.finish();
  }
  bool made = file_calls::link(own, path) == 0;
  int error = made ? 0 : errno;
  struct stat info {};
  // An answer that NFS has lost is asked for again, and the second time the name is there.
  if (!made && file_calls::stat(own, &info) == 0 && info.st_nlink == 2) made = true, error = 0;
  file_calls::unlink(own);
  // Its holder takes such names for a dead saver's.
  check<ResourceError>(made || error == EEXIST || error == ENOENT,
                       "cannot make {}: {}: {} has neither locks nor links, so two runs that save "
                       "there could not be kept apart; choose another --run-dir",
                       path, errno_text(error), path.substr(0, path.rfind('/')));
  return made;
}

/// Takes the file that says `dead` away. Another may have done so, and made its own meanwhile:
/// that goes back.
void take_away(const std::string& path, const std::string& dead) {
  const std::string aside = path + "." + token();
  if (file_calls::rename(path, aside) != 0) {
    const int error = errno;
    check<ResourceError>(error == ENOENT, "cannot rename {}: {}", path, errno_text(error));
    return;
  }
  const auto seen = look(aside);
  if (seen && seen->text != dead) file_calls::link(aside, path);
  file_calls::unlink(aside);
}

/// Of a holder that cannot be asked: it renews the file, or lets it go, within the time.
bool lives(const std::string& path, const Seen& seen, Duration silence) {
  const auto deadline = Deadline::after(silence);
  const auto pause = std::clamp<Duration>(silence / 100, std::chrono::milliseconds(1),
                                          std::chrono::milliseconds(500));
  while (!deadline.expired()) {
    std::this_thread::sleep_for(pause);
    if (look(path) != seen) return true;
  }
  return false;
}

std::string described(const std::optional<ProcessId>& holder) {
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

bool SaverLockFile::is_free(const std::string& path, Duration silence, std::string* holder) {
  const auto seen = look(path);
  if (!seen) return true;
  const auto who = read_saver_lock(seen->text);
  const Presence presence = who ? presence_of(*who) : Presence::elsewhere;
  if (presence == Presence::alive || (presence != Presence::dead && lives(path, *seen, silence))) {
    if (holder) *holder = described(who);
    return false;
  }
  log_warn("{} was left by {}, which is gone", path, described(who));
  take_away(path, seen->text);
  return true;
}

std::unique_ptr<SaverLockFile> SaverLockFile::try_take(const std::string& path, Duration beat,
                                                       Duration silence, std::string* holder) {
  const std::string text = saver_lock_text(own_process_id(), token());
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (make(path, text))
      return std::unique_ptr<SaverLockFile>(new SaverLockFile(path, text, beat));
    if (!is_free(path, silence, holder)) return nullptr;
  }
  if (holder) *holder = "one of many that try";
  return nullptr;
}

SaverLockFile::SaverLockFile(std::string path, std::string text, Duration beat)
    : path_(std::move(path)), text_(std::move(text)), beat_(beat) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { renew(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void SaverLockFile::renew() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, beat_, [&] { return ends_; })) {
    lock.unlock();
    file_calls::touch(path_);  // where that fails, the next may not
    lock.lock();
  }
}

void SaverLockFile::check_ours() const {
  const auto seen = look(path_);
  check<ResourceError>(seen && seen->text == text_,
                       "{} is not this process's any more: {} took it for dead, as it had not "
                       "renewed the file for long",
                       path_, seen ? described(read_saver_lock(seen->text)) : "another saver");
}

SaverLockFile::~SaverLockFile() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
  try {
    check_ours();
    file_calls::unlink(path_);
  } catch (const ResourceError& e) {
    log_warn("{}", e.what());
  }
}

}  // namespace trireme
