// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/file/file_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <string_view>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/rank_label.h"

namespace trireme {
namespace {

struct FileFault {
  enum Act { kill_before, kill_after, group_before, group_after, give_error, shorten, fail_sync };
  int64_t number = 0;
  bool onwards = false;
  std::string kind;  // "": by number
  Act act = give_error;
  int error = 0;
};

struct FaultPlan {
  std::vector<FileFault> faults;
  std::string only, count, record;
  int rank = -1;  // any
  bool empty() const { return faults.empty() && count.empty() && record.empty(); }
};

struct FileFaultState {
  std::atomic<bool> armed{false};
  std::mutex mutex;
  FaultPlan plan;
  int64_t calls = 0;
};

FileFaultState& file_fault_state() {
  static FileFaultState* s = new FileFaultState;
  return *s;
}

constexpr std::string_view kFileCallNames[] = {
    "open",  "create",   "write",    "pwrite", "read",    "pread", "fsync",   "fdatasync",
    "close", "rename",   "exchange", "mkdir",  "unlink",  "rmdir", "opendir", "readdir",
    "stat",  "truncate", "allocate", "lock",   "statvfs", "map"};

constexpr struct {
  std::string_view name;
  FileFault::Act act;
  int error;
} kFileFaultNames[] = {{"kill-before", FileFault::kill_before, 0},
                       {"kill-after", FileFault::kill_after, 0},
                       {"kill-group-before", FileFault::group_before, 0},
                       {"kill-group-after", FileFault::group_after, 0},
                       {"ENOSPC", FileFault::give_error, ENOSPC},
                       {"EDQUOT", FileFault::give_error, EDQUOT},
                       {"EIO", FileFault::give_error, EIO},
                       {"EROFS", FileFault::give_error, EROFS},
                       {"EINVAL", FileFault::give_error, EINVAL},
                       {"short", FileFault::shorten, 0},
                       {"fsync-fails", FileFault::fail_sync, EIO}};

int64_t count_in(std::string_view text, const std::string& item, int64_t least) {
  int64_t value = 0;
  for (char c : text) {
    check<UsageError>(c >= '0' && c <= '9' && value < 1'000'000'000,
                      "file fault '{}': '{}' is not a number", item, text);
    value = value * 10 + (c - '0');
  }
  check<UsageError>(!text.empty() && value >= least,
                    "file fault '{}': '{}' is not a number from {}", item, text, least);
  return value;
}

FileFault fault_in(const std::string& item) {
  const auto colon = item.find(':');
  check<UsageError>(colon != std::string::npos,
                    "file fault '{}': write NUMBER:WHAT, only=TEXT, rank=R, count=PATH or "
                    "record=PATH",
                    item);
  std::string_view number(item.data(), colon), what(item);
  what.remove_prefix(colon + 1);
  FileFault fault;
  if (std::find(std::begin(kFileCallNames), std::end(kFileCallNames), number) !=
      std::end(kFileCallNames)) {
    fault.kind = number;
  } else {
    fault.onwards = !number.empty() && number.back() == '+';
    if (fault.onwards) number.remove_suffix(1);
    fault.number = count_in(number, item, 1);
  }
  for (const auto& known : kFileFaultNames) {
    if (known.name != what) continue;
    fault.act = known.act, fault.error = known.error;
    check<UsageError>((!fault.onwards && fault.kind.empty()) || fault.act == FileFault::give_error,
                      "file fault '{}': only an error of the system goes with {}, not {}", item,
                      fault.onwards ? "'+'" : "a kind of calls", what);
    return fault;
  }
  fail<UsageError>(
      "file fault '{}': unknown fault; use kill-before, kill-after, kill-group-before, "
      "kill-group-after, ENOSPC, EDQUOT, EIO, EROFS, EINVAL, short or fsync-fails",
      item);
}

void take_item(FaultPlan& plan, const std::string& item) {
  const auto equals = item.find('=');
  if (equals == std::string::npos) {
    plan.faults.push_back(fault_in(item));
    return;
  }
  const std::string name = item.substr(0, equals), value = item.substr(equals + 1);
  check<UsageError>(!value.empty(), "file fault '{}': nothing behind the '='", item);
  if (name == "only") {
    plan.only = value;
  } else if (name == "count") {
    plan.count = value;
  } else if (name == "record") {
    plan.record = value;
  } else {
    check<UsageError>(name == "rank",
                      "file fault '{}': unknown word; use only, rank, count or record", item);
    plan.rank = static_cast<int>(count_in(value, item, 0));
  }
}

const bool file_faults_from_environment = [] {
  if (const char* text = std::getenv("TRIREME_FILE_FAULTS")) {
    try {
      set_file_faults(text);
    } catch (const Error& e) {
      std::string line = std::string("trireme: error: TRIREME_FILE_FAULTS: ") + e.what() + "\n";
      [[maybe_unused]] auto n = ::write(2, line.data(), line.size());
    }
  }
  return true;
}();

std::string path_of_descriptor(int fd) {
  std::string path(4096, '\0');
  const ssize_t n =
      ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path.data(), path.size());
  path.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return path;
}

// As /proc shows it: the folder without links, then the name.
std::string whole_path(const std::string& given) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path path = fs::absolute(given, error).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  const fs::path folder = fs::canonical(path.parent_path(), error);
  return error ? path.string() : (folder / path.filename()).string();
}

// A disk on which nothing can be changed, or that has no room, goes on to serve other calls.
bool refused_by_such_a_disk(const detail::FileCall& call, int error) {
  switch (call.kind) {
    case FileCallKind::create:
    case FileCallKind::write:
    case FileCallKind::pwrite:
    case FileCallKind::mkdir:
    case FileCallKind::rename:
    case FileCallKind::exchange:
    case FileCallKind::allocate:
      return true;
    case FileCallKind::unlink:
    case FileCallKind::rmdir:
    case FileCallKind::truncate:
      return error == EROFS || error == EIO;
    default:
      return error == EIO;
  }
}

bool moves_bytes(FileCallKind kind) {
  return kind == FileCallKind::write || kind == FileCallKind::pwrite ||
         kind == FileCallKind::read || kind == FileCallKind::pread;
}

bool syncs(FileCallKind kind) {
  return kind == FileCallKind::fsync || kind == FileCallKind::fdatasync;
}

bool hits(const FileFault& fault, int64_t number, const detail::FileCall& call) {
  if (!fault.kind.empty()) return fault.kind == name_of(call.kind);
  if (number < fault.number) return false;
  switch (fault.act) {
    case FileFault::shorten:
      return moves_bytes(call.kind) && call.size > 1;
    case FileFault::fail_sync:
      return syncs(call.kind);
    case FileFault::give_error:
      return number == fault.number || (fault.onwards && refused_by_such_a_disk(call, fault.error));
    default:
      return number == fault.number;
  }
}

[[noreturn]] void end_by_kill(bool group) {
  ::kill(group ? 0 : ::getpid(), SIGKILL);
  for (;;) ::pause();
}

void append(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

const char* name_of(FileCallKind kind) { return kFileCallNames[static_cast<size_t>(kind)].data(); }

void set_file_faults(const std::string& text) {
  FaultPlan plan;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) take_item(plan, text.substr(begin, end - begin));
    begin = end + 1;
  }
  check<UsageError>(text.empty() || !plan.empty(),
                    "file faults '{}' name no fault, no count and no record", text);
  check<UsageError>(plan.count.empty() || plan.record.empty(),
                    "file faults '{}': record counts as well; leave count out", text);
  FileFaultState& state = file_fault_state();
  std::lock_guard lock(state.mutex);
  state.plan = std::move(plan);
  state.calls = 0;
  state.armed = !state.plan.empty();
}

namespace detail {

bool file_faults_armed() { return file_fault_state().armed.load(std::memory_order_relaxed); }

FileVisit::FileVisit(FileCall call) : call_(std::move(call)), size_(call_.size) {
  const int code = errno;
  call_.path = call_.fd >= 0 ? path_of_descriptor(call_.fd) : whole_path(call_.path);
  if (!call_.to.empty()) call_.to = whole_path(call_.to);
  FileFaultState& state = file_fault_state();
  FileFault::Act act = FileFault::give_error;
  {
    std::lock_guard lock(state.mutex);
    FaultPlan& plan = state.plan;
    const bool counts = (plan.rank < 0 || plan.rank == thread_rank()) &&
                        (call_.path.find(plan.only) != std::string::npos ||
                         (!call_.to.empty() && call_.to.find(plan.only) != std::string::npos));
    if (!counts || plan.empty()) {
      errno = code;
      return;
    }
    number_ = ++state.calls;
    keeps_bytes_ = !plan.record.empty();
    log_path_ = keeps_bytes_ ? plan.record : plan.count;
    for (auto it = plan.faults.begin(); it != plan.faults.end(); ++it) {
      if (!hits(*it, number_, call_)) continue;
      act = it->act, error_ = it->error;
      if (act == FileFault::shorten) size_ = call_.size / 2;
      // Those that wait for a call which they fit act once.
      if (act == FileFault::shorten || act == FileFault::fail_sync) plan.faults.erase(it);
      break;
    }
  }
  if (act == FileFault::kill_before || act == FileFault::group_before)
    end_by_kill(act == FileFault::group_before);
  if (act == FileFault::kill_after) end_after_ = -1;
  if (act == FileFault::group_after) end_after_ = 1;
  if (call_.kind == FileCallKind::write) call_.offset = ::lseek(call_.fd, 0, SEEK_CUR);
  if (!log_path_.empty() && !call_.comes_back_later) open_log();
  errno = code;
}

void FileVisit::open_log() {
  log_ = ::open(log_path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  while (log_ >= 0 && ::flock(log_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

void FileVisit::append_to_log(int64_t result) {
  if (log_ < 0) open_log();
  int64_t data_at = -1;
  if (keeps_bytes_ && call_.bytes && result > 0) {
    const int data =
        ::open((log_path_ + ".data").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    data_at = ::lseek(data, 0, SEEK_END);
    append(data, {static_cast<const char*>(call_.bytes), static_cast<size_t>(result)});
    ::close(data);
  }
  append(log_, fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", number_, thread_rank(),
                           name_of(call_.kind), result, call_.truncates ? 1 : 0, call_.offset,
                           data_at, call_.path, call_.to));
  ::close(log_);
  log_ = -1;
}

void FileVisit::done(int64_t result) {
  if (!number_) return;
  const int code = errno;
  if (!log_path_.empty()) append_to_log(result);
  if (end_after_) end_by_kill(end_after_ > 0);
  errno = code;
}

FileVisit::~FileVisit() {
  if (log_ >= 0) ::close(log_);
}

}  // namespace detail
}  // namespace trireme
