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
#include <mutex>
#include <string_view>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/file/fault_plan.h"
#include "trireme/base/rank_label.h"

namespace trireme {
namespace {

using detail::FaultPlan;
using detail::FileFault;
using detail::parse_fault_plan;

struct FileFaultState {
  std::atomic<bool> armed{false};
  std::mutex mutex;
  FaultPlan plan;
  int64_t calls = 0;
  Clock::time_point slow_until{};  // what was written so far keeps a slow disk at work until then
};

FileFaultState& file_fault_state() {
  static FileFaultState* s = new FileFaultState;
  return *s;
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

void set_file_faults(const std::string& text) {
  FaultPlan plan = parse_fault_plan(text);
  FileFaultState& state = file_fault_state();
  std::lock_guard lock(state.mutex);
  state.plan = std::move(plan);
  state.calls = 0;
  state.slow_until = {};
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
  if (!error_) wait_for_slow_disk();
  if (act == FileFault::kill_before || act == FileFault::group_before)
    end_by_kill(act == FileFault::group_before);
  if (act == FileFault::kill_after) end_after_ = -1;
  if (act == FileFault::group_after) end_after_ = 1;
  if (call_.kind == FileCallKind::write) call_.offset = ::lseek(call_.fd, 0, SEEK_CUR);
  if (!log_path_.empty() && !call_.comes_back_later) open_log();
  errno = code;
}

void FileVisit::wait_for_slow_disk() const {
  if (call_.kind != FileCallKind::write && call_.kind != FileCallKind::pwrite) return;
  FileFaultState& state = file_fault_state();
  Clock::time_point until;
  {
    std::lock_guard lock(state.mutex);
    if (state.plan.bytes_a_second == 0) return;
    const auto seconds = std::chrono::duration<double>(
        static_cast<double>(size_) / static_cast<double>(state.plan.bytes_a_second));
    state.slow_until = std::max(state.slow_until, Clock::now()) +
                       std::chrono::duration_cast<Clock::duration>(seconds);
    until = state.slow_until;
  }
  std::this_thread::sleep_until(until);
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
