// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
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

std::string contents(int fd) {
  std::string text(kLongest + 1, '\0');
  const ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

bool is_at(int fd, const std::string& path) {
  struct stat here {
  }, there{};
  return ::fstat(fd, &here) == 0 && ::stat(path.c_str(), &there) == 0 &&
         here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

std::string described(const LockOwner& owner) {
  return fmt::format("process {} on {} since {}", owner.process.pid, owner.process.host,
                     owner.since);
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
      return q.take_over ? LockAnswer::take : LockAnswer::refuse_elsewhere;
  }
  return LockAnswer::refuse_running;
}

LockOwner this_owner() { return {own_process_id(), utc_now()}; }

std::string lock_text(const LockOwner& owner) {
  const ProcessId& p = owner.process;
  return Json{{"format", kMagic},         {"version", kRunLockVersion},
              {"host", p.host},           {"pid", p.pid},
              {"since", owner.since},     {"boot", p.boot},
              {"pid_space", p.pid_space}, {"start", p.start}}
             .dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\n";
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
      fd_(std::move(other.fd_)) {}

bool RunLock::try_once(const RunLockOptions& options, Deadline deadline) {
  UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  check<ResourceError>(static_cast<bool>(fd), "cannot write {}: {}", path_, errno_text());
  LockQuestion question;
  question.take_over = options.take_over;
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    question.held = errno == EWOULDBLOCK ? std::optional(true) : std::nullopt;
  // Its owner may have left, and removed it, since it was opened.
  if (!is_at(fd.get(), path_)) return false;

  const auto owner = read_lock(contents(fd.get()), path_);
  question.named = owner.has_value();
  if (owner) question.owner = presence_of(owner->process);
  switch (answer_of(question)) {
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
             question.owner == Presence::elsewhere ? ", as --take-over says" : "");

  text_ = lock_text(this_owner());
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), text_.data(), text_.size(), 0) != static_cast<ssize_t>(text_.size()) ||
      ::fsync(fd.get()) != 0) {
    const int code = errno;
    ::unlink(path_.c_str());
    fail<ResourceError>("cannot write {}: {}", path_, errno_text(code));
  }
  fd_ = std::move(fd);
  return true;
}

RunLock RunLock::adopt(const std::string& folder, int fd) {
  RunLock lock;
  lock.folder_ = folder;
  lock.path_ = folder + "/" + kRunLockName;
  lock.text_ = contents(fd);
  lock.fd_.reset(fd);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return lock;
}

RunLock::~RunLock() {
  if (fd_ && is_at(fd_.get(), path_) && contents(fd_.get()) == text_) ::unlink(path_.c_str());
}

void RunLock::pass_on() const { ::fcntl(fd_.get(), F_SETFD, 0); }

}  // namespace trireme::launch
