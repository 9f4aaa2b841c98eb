// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/lock_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/log.h"
#include "trireme/base/output_file.h"
#include "trireme/base/process/quiet_thread.h"

namespace trireme {
namespace {

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

/// False: one is there already.
bool make(const std::string& path, const std::string& text) {
  const std::string own = path + "." + random_name();
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
  // ENOENT: a holder has removed ours as what a dead process left.
  check<ResourceError>(made || error == EEXIST || error == ENOENT,
                       "cannot make {}: {}: {} has neither locks nor links, so two runs could not "
                       "be kept apart there; choose another --run-dir",
                       path, errno_text(error), parent_folder(path));
  return made;
}

/// The file that says `dead`. Another process may have done so, and a third made its own: that goes
/// back.
void move_away(const std::string& path, const std::string& dead) {
  const std::string aside = path + "." + random_name();
  if (file_calls::rename(path, aside) != 0) {
    const int error = errno;
    check<ResourceError>(error == ENOENT, "cannot rename {}: {}", path, errno_text(error));
    return;
  }
  const auto seen = LockFile::look(aside);
  if (seen && seen->text != dead) file_calls::link(aside, path);
  file_calls::unlink(aside);
}

}  // namespace

std::optional<LockFile::Seen> LockFile::look(const std::string& path) {
  // It is opened anew each time, so that an NFS client asks the server.
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

bool LockFile::changes(const std::string& path, const Seen& seen, Duration silence) {
  const auto deadline = Deadline::after(silence);
  const auto pause = std::clamp<Duration>(silence / 100, std::chrono::milliseconds(1),
                                          std::chrono::milliseconds(500));
  while (!deadline.expired()) {
    std::this_thread::sleep_for(pause);
    if (look(path) != seen) return true;
  }
  return false;
}

void LockFile::take_away(const std::string& path, const std::string& dead, Duration silence) {
  const std::string turn = path + ".taking";
  if (!make(turn, random_name())) {
    const auto seen = look(turn);
    if (seen && !changes(turn, *seen, silence)) move_away(turn, seen->text);
    return;
  }
  const auto seen = look(path);
  const bool gone = !seen || seen->text != dead || file_calls::unlink(path) == 0;
  const int error = gone ? 0 : errno;
  file_calls::unlink(turn);
  check<ResourceError>(gone || error == ENOENT, "cannot delete {}: {}", path, errno_text(error));
}

/// The thread that renews the file. In a forked child there is none, and the object is let be: the
/// wait of a thread that is not there would have no end.
class LockFile::Renewal {
 public:
  Renewal(const LockFile& file, Duration beat) : file_(file), beat_(beat) {
    try {
      thread_ = quiet_thread([this] { run(); });
    } catch (const std::system_error& e) {
      fail<ResourceError>("cannot start a thread that renews {}: {}", file.path_, e.what());
    }
  }
  ~Renewal() {
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, beat_, [&] { return ends_; })) {
      lock.unlock();
      if (!renew()) return;
      lock.lock();
    }
  }
  /// False: it is another's now. Where that cannot be seen, the next beat may.
  bool renew() const {
    try {
      if (const auto seen = look(file_.path_); seen && seen->text != file_.text_) {
        log_warn("{}", file_.loss(*seen));
        return false;
      }
      file_calls::touch(file_.path_);
    } catch (const ResourceError&) {
    }
    return true;
  }

  const LockFile& file_;
  const Duration beat_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;
};

LockFile::LockFile(std::string path, std::string text, Describe describe)
    : path_(std::move(path)), text_(std::move(text)), describe_(describe), process_(::getpid()) {}

std::unique_ptr<LockFile> LockFile::try_make(const std::string& path, std::string text,
                                             Duration beat, Describe describe) {
  if (!make(path, text)) return nullptr;
  return adopt(path, std::move(text), beat, describe);
}

std::unique_ptr<LockFile> LockFile::adopt(const std::string& path, std::string text, Duration beat,
                                          Describe describe) {
  std::unique_ptr<LockFile> file(new LockFile(path, std::move(text), describe));
  file->renewal_ = std::make_unique<Renewal>(*file, beat);
  return file;
}

std::string LockFile::loss(const std::optional<Seen>& now) const {
  return fmt::format(
      "{} is not this process's any more: {} took it for dead, as it had not renewed the file for "
      "long",
      path_, now ? describe_(now->text) : "another process");
}

void LockFile::check_ours() const {
  const auto now = look(path_);
  check<ResourceError>(now && now->text == text_, "{}", loss(now));
}

LockFile::~LockFile() {
  if (::getpid() != process_) {
    static_cast<void>(renewal_.release());
    return;
  }
  renewal_.reset();
  try {
    check_ours();
    file_calls::unlink(path_);
  } catch (const ResourceError& e) {
    log_warn("{}", e.what());
  }
}

}  // namespace trireme
