// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/log.h"

namespace trireme::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMagic = "trireme-run-lock";
constexpr size_t kLongest = 4096;

std::string utc_now() {
  const time_t now = ::time(nullptr);
  tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  ::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string contents(int fd, const std::string& path) {
  std::string text(kLongest + 1, '\0');
  const ssize_t n = file_calls::pread(fd, text.data(), text.size(), 0);
  check<ResourceError>(n >= 0, "cannot read {}: {}", path, errno_text());
  text.resize(static_cast<size_t>(n));
  return text;
}

/// False: that file has gone, or another is in its place.
bool is_at(int fd, const std::string& path) {
  struct stat here {
  }, there{};
  if (file_calls::fstat(fd, &here) != 0 || file_calls::stat(path, &there) != 0) {
    const int error = errno;
    check<ResourceError>(error == ENOENT || error == ESTALE, "cannot look at {}: {}", path,
                         errno_text(error));
    return false;
  }
  check<ResourceError>(S_ISREG(here.st_mode), "{} is not a regular file: remove it", path);
  return here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

std::string described(const LockOwner& owner) {
  return fmt::format("process {} on {} since {}", owner.process.pid, owner.process.host,
                     owner.since);
}

/// Nothing: nobody, or nobody's words.
std::optional<LockOwner> owner_in(const std::string& text) {
  try {
    return read_lock(text, kRunLockName);
  } catch (const Error&) {
    return {};
  }
}

std::string owner_text(const std::string& text) {
  const auto owner = owner_in(text);
  return owner ? described(*owner) : "another process";
}

/// What dead launchers left on their way to a name.
void remove_leftovers(const std::string& folder) {
  for (const std::string& name : list_folder(folder))
    if (name.starts_with(std::string(kRunLockName) + ".")) file_calls::unlink(folder + "/" + name);
}

}  // namespace

LockAnswer answer_of(const LockQuestion& q) {
  const bool held = q.held.value_or(false);
  if (!q.named) return held ? LockAnswer::wait : LockAnswer::take;
  switch (q.owner) {
    case Presence::alive:
      return LockAnswer::refuse_running;
    case Presence::dead:
      return held ? LockAnswer::wait : LockAnswer::take;
    case Presence::hidden:  // the kernel that we share with it knows
      if (q.held) return held ? LockAnswer::refuse_running : LockAnswer::take;
      [[fallthrough]];
    case Presence::elsewhere:
      if (q.take_over) return LockAnswer::take;
      if (q.renewed) return *q.renewed ? LockAnswer::refuse_running : LockAnswer::take;
      return LockAnswer::refuse_elsewhere;
  }
  return LockAnswer::refuse_running;
}

LockOwner this_owner() { return {own_process_id(), utc_now()}; }

std::string lock_text(const LockOwner& owner) {
  const ProcessId& p = owner.process;
  Json json{{"format", kMagic},         {"version", kRunLockVersion},
            {"host", p.host},           {"pid", p.pid},
            {"since", owner.since},     {"boot", p.boot},
            {"pid_space", p.pid_space}, {"start", p.start}};
  if (owner.renews) json["renewed"] = true;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<LockOwner> read_lock(std::string_view text, const std::string& path) {
  if (text.empty()) return std::nullopt;
  const Json json = text.size() > kLongest ? Json() : Json::parse(text, nullptr, false);
  const bool ours = json.is_object() && json.value("format", Json()) == kMagic &&
                    json.value("version", Json()).is_number_integer();
  check<Corrupt>(
      ours, "{} does not say which job has the folder: if none runs in it, remove that file", path);
  const int64_t version = json["version"].get<int64_t>();
  check<UsageError>(version <= kRunLockVersion,
                    "{} has version {}, and this program knows version {}: a newer trireme is "
                    "using the folder; wait for it, or use that version",
                    path, version, kRunLockVersion);
  auto text_of = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
  };
  auto number_of = [&](const char* key) {
    return json.contains(key) && json[key].is_number_integer() ? json[key].get<int64_t>() : -1;
  };
  LockOwner owner;
  owner.process = {text_of("host"), text_of("boot"), text_of("pid_space"), number_of("pid"),
                   number_of("start")};
  owner.since = text_of("since");
  owner.renews = json.value("renewed", Json()) == true;
  check<Corrupt>(owner.process.pid > 0,
                 "{} does not say which job has the folder: if none runs in it, remove that file",
                 path);
  return owner;
}

RunLock::RunLock(const std::string& folder, const RunLockOptions& options)
    : folder_(folder), path_(folder + "/" + kRunLockName) {
  const auto deadline = Deadline::after(options.patience);
  while (!try_once(options, deadline)) ::usleep(20'000);
}

RunLock::RunLock(RunLock&& other) noexcept
    : folder_(std::move(other.folder_)),
      path_(std::move(other.path_)),
      text_(std::move(other.text_)),
      fd_(std::move(other.fd_)),
      file_(std::move(other.file_)) {}

bool RunLock::try_once(const RunLockOptions& options, Deadline deadline) {
  UniqueFd fd(
      file_calls::open(path_, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
  check<ResourceError>(static_cast<bool>(fd), "cannot write {}: {}", path_, errno_text());
  LockQuestion question;
  question.take_over = options.take_over;
  if (file_calls::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    question.held = errno == EWOULDBLOCK ? std::optional(true) : std::nullopt;
  // Its owner may have left, and removed it, since it was opened.
  if (!is_at(fd.get(), path_)) return false;

  const std::string found = contents(fd.get(), path_);
  const auto owner = read_lock(found, path_);
  question.named = owner.has_value();
  if (owner) question.owner = presence_of(owner->process);
  const bool unseen = question.owner == Presence::elsewhere || question.owner == Presence::hidden;
  if (!question.held && unseen && owner->renews && !options.take_over) {
    const auto seen = LockFile::look(path_);
    if (!seen || seen->text != found) return false;
    log_info("waiting for up to {:.0f} s, to see whether {} still has {}",
             std::chrono::duration<double>(options.silence).count(), described(*owner), folder_);
    question.renewed = LockFile::changes(path_, *seen, options.silence);
    // It may have left.
    if (const auto now = LockFile::look(path_); !now || now->text != found) return false;
  }
  if (!may_take(question, owner, options, deadline)) return false;
  if (!question.held) return take_by_name(found, options);

  text_ = lock_text(this_owner());
  if (file_calls::ftruncate(fd.get(), 0) != 0 ||
      file_calls::pwrite(fd.get(), text_.data(), text_.size(), 0) !=
          static_cast<ssize_t>(text_.size()) ||
      file_calls::fsync(fd.get()) != 0) {
    const int code = errno;
    file_calls::unlink(path_);
    fail<ResourceError>("cannot write {}: {}", path_, errno_text(code));
  }
  fd_ = std::move(fd);
  return true;
}

/// False: not yet.
bool RunLock::may_take(const LockQuestion& question, const std::optional<LockOwner>& owner,
                       const RunLockOptions& options, Deadline deadline) const {
  const LockAnswer answer = answer_of(question);
  if (options.after_predecessor && !deadline.expired() &&
      (answer == LockAnswer::refuse_running || answer == LockAnswer::refuse_elsewhere))
    return false;
  const bool overdue = options.after_predecessor && answer == LockAnswer::refuse_elsewhere;
  switch (overdue ? LockAnswer::take : answer) {
    case LockAnswer::take:
      break;
    case LockAnswer::refuse_running:
      fail<ResourceError>(
          "{} is another job's: {} trains in it. Give this one another --run-dir, or end that one "
          "first",
          folder_, described(*owner));
    case LockAnswer::refuse_elsewhere:
      fail<ResourceError>(
          "{} belongs to another job: {} has it, and this host cannot tell whether it still runs. "
          "Give this job another --run-dir; if that job is gone, --take-over takes the folder",
          folder_, described(*owner));
    case LockAnswer::wait:
      check<ResourceError>(
          !deadline.expired(),
          "{} is still in use: {} is gone, and a process that it started runs on. End it (fuser "
          "{} shows it), or give this one another --run-dir",
          folder_, owner ? described(*owner) : "who locked it", path_);
      return false;
  }
  if (owner)
    log_info("{} was left locked by {}, which is gone{}", folder_, described(*owner),
             options.take_over && question.owner == Presence::elsewhere ? ", as --take-over says"
             : question.renewed ? ", as it has long been silent"
                                : "");
  return true;
}

/// False: another launcher was faster. `found` is of nobody, or of who is dead.
bool RunLock::take_by_name(const std::string& found, const RunLockOptions& options) {
  LockFile::take_away(path_, found, options.silence);
  LockOwner self = this_owner();
  self.renews = true;
  text_ = lock_text(self);
  file_ = LockFile::try_make(path_, text_, options.beat, owner_text);
  if (!file_) return false;
  remove_leftovers(folder_);
  // For a program that this process may become.
  fd_.reset(file_calls::open(path_, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  check<ResourceError>(static_cast<bool>(fd_), "cannot read {}: {}", path_, errno_text());
  return true;
}

RunLock RunLock::adopt(const std::string& folder, int fd, const RunLockOptions& options) {
  RunLock lock;
  lock.folder_ = folder;
  lock.path_ = folder + "/" + kRunLockName;
  lock.fd_.reset(fd);
  lock.text_ = contents(fd, lock.path_);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  if (const auto owner = owner_in(lock.text_); owner && owner->renews)
    lock.file_ = LockFile::adopt(lock.path_, lock.text_, options.beat, owner_text);
  return lock;
}

RunLock::~RunLock() {
  if (file_) {
    fd_.reset();  // an NFS client keeps a removed file under another name while it is open
    file_.reset();
    return;
  }
  try {
    if (fd_ && is_at(fd_.get(), path_) && contents(fd_.get(), path_) == text_)
      file_calls::unlink(path_);
  } catch (const ResourceError& e) {
    log_warn("{}", e.what());
  }
}

void RunLock::pass_on() const { ::fcntl(fd_.get(), F_SETFD, 0); }

}  // namespace trireme::launch
