// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/hang/hang_report.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/log.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/proc_text.h"
#include "trireme/launch/process/process.h"
#include "trireme/launch/worker_env.h"

namespace trireme::launch {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr Duration kToAnswer = milliseconds(500);
constexpr Duration kForStacks = std::chrono::seconds(2);
constexpr size_t kMostThreads = 256;

std::string proc(const RankInSight& r, const std::string& file) {
  std::string text = read_if_there("/proc/" + std::to_string(r.pid) + "/" + file).value_or("");
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.pop_back();
  return text;
}

std::string line_of(const std::string& status, std::string_view name) {
  const size_t at = status.find(name);
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size();
  return std::string(trim(status.substr(begin, status.find('\n', begin) - begin)));
}

bool answers(const RankInSight& r) {
  if (r.stopped) return false;
  const std::string caught = line_of(proc(r, "status"), "SigCgt:");
  return std::strtoull(caught.c_str(), nullptr, 16) >> (SIGUSR2 - 1) & 1;
}

int64_t new_files(const std::string& folder, fs::file_time_type since) {
  std::error_code error;
  int64_t n = 0;
  for (const auto& entry : fs::directory_iterator(folder, error))
    n += entry.path().extension() == ".flight" && entry.last_write_time(error) >= since;
  return n;
}

/// SIGUSR2, to those that have a handler of it. How many.
int ask_for_flight_records(const HangGuard::Hang& hang, const std::string& folder) {
  const auto since = fs::file_time_type::clock::now() - milliseconds(20);  // a file system's clock
  int asked = 0;
  for (const RankInSight& r : hang.ranks)
    if (answers(r) && ::kill(r.pid, SIGUSR2) == 0) ++asked;
  const Deadline patience = Deadline::after(kToAnswer);
  while (new_files(folder, since) < asked && !patience.expired())
    std::this_thread::sleep_for(milliseconds(10));
  return asked;
}

/// "state T (stopped), in do_signal_stop, system call 202 …".
std::string of_thread(const RankInSight& r, const std::string& task) {
  const std::string in_kernel = proc(r, task + "/wchan"), call = proc(r, task + "/syscall");
  std::string text = "state " + line_of(proc(r, task + "/status"), "State:");
  if (!in_kernel.empty() && in_kernel != "0") text += ", in " + in_kernel;
  if (!call.empty()) text += call == "running" ? ", on a CPU" : ", system call " + call;
  return text;
}

std::string of_rank(const RankInSight& r) {
  std::string text = fmt::format(
      "rank {} (pid {}): {} {}, silent for {:.3g} s of {:.3g} s{}{}\n", r.rank, r.pid,
      name_of(r.marks.at), r.marks.step, std::chrono::duration<double>(r.marks.silence).count(),
      std::chrono::duration<double>(r.marks.limit).count(),
      r.waits_in.empty() ? "" : ", waits in " + r.waits_in, r.stopped ? ", stopped" : "");
  std::error_code error;
  size_t n = 0;
  for (const auto& entry :
       fs::directory_iterator("/proc/" + std::to_string(r.pid) + "/task", error)) {
    if (++n > kMostThreads) break;
    const std::string task = "task/" + entry.path().filename().string();
    text += fmt::format("  thread {} {}: {}\n", entry.path().filename().string(),
                        proc(r, task + "/comm"), of_thread(r, task));
    // Readable for root alone.
    if (const std::string stack = proc(r, task + "/stack"); !stack.empty()) text += stack + "\n";
  }
  return text;
}

struct Report {
  std::string path;
  UniqueFd fd;
  void write(const std::string& text) const {
    [[maybe_unused]] const auto n = ::write(fd.get(), text.data(), text.size());
  }
};

/// A new file: an earlier attempt may have left one.
Report open_report(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  for (int i = 1; i < 1000; ++i) {
    Report report{folder + (i == 1 ? "/hang.txt" : fmt::format("/hang-{}.txt", i)), {}};
    report.fd =
        UniqueFd(::open(report.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (report.fd || errno != EEXIST) return report;
  }
  return {};
}

std::optional<std::vector<std::string>> stack_tool(pid_t pid) {
  const std::string number = std::to_string(pid);
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"eu-stack", "-p", number},
           {"gdb", "-nx", "-batch", "-p", number, "-ex", "thread apply all bt"}}) {
    try {
      find_program(words[0]);
      return words;
    } catch (const UsageError&) {
    }
  }
  return std::nullopt;
}

/// Its stacks, as another program sees them. False: there is no time left.
bool add_stacks(const RankInSight& r, const Report& report, Deadline deadline) {
  const auto words = stack_tool(r.pid);
  if (!words) return false;
  UniqueFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ProcessSpec tool;
  tool.program = find_program(words->front());
  tool.argv = *words;
  tool.env = merged_environment({});
  tool.stdin_fd = nothing.get();
  tool.stdout_fd = tool.stderr_fd = report.fd.get();
  report.write(fmt::format("\nstacks of rank {}, by {}\n", r.rank, words->front()));
  const pid_t pid = start_process(tool);
  while (::waitpid(pid, nullptr, WNOHANG) == 0) {
    if (deadline.expired()) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
      report.write("(it took too long)\n");
      return false;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

/// What workers wrote down of their remote calls since then.
std::string calls_under_way(const std::string& folder, fs::file_time_type since) {
  constexpr size_t kMostBytes = 256 << 10;
  std::string text;
  std::error_code error;
  if (folder.empty()) return text;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.path().extension() == ".calls" && entry.last_write_time(error) >= since &&
        text.size() < kMostBytes)
      text += "\n" + read_if_there(entry.path().string()).value_or("").substr(0, kMostBytes);
  return text;
}

void write_report(const HangGuard::Hang& hang, const std::string& folder,
                  const std::string& calls) {
  const Report report = open_report(folder);
  if (!report.fd) return log_warn("cannot write {}: {}", report.path, errno_text());
  report.write(hang.verdict.sentence + "\n\n");
  for (const RankInSight& r : hang.ranks) report.write(of_rank(r));
  report.write(calls);
  log_info("what the ranks were doing: {}", report.path);
  // Those that hang first: a program as large as ours takes seconds.
  const Deadline deadline = Deadline::after(kForStacks);
  for (size_t i : hang.verdict.blamed)
    if (!add_stacks(hang.ranks[i], report, deadline)) return;
  for (size_t i = 0; i < hang.ranks.size(); ++i)
    if (std::find(hang.verdict.blamed.begin(), hang.verdict.blamed.end(), i) ==
            hang.verdict.blamed.end() &&
        !add_stacks(hang.ranks[i], report, deadline))
      return;
}

}  // namespace

void report_hang(const HangGuard::Hang& hang, const HangFolders& folders) noexcept try {
  const auto since = fs::file_time_type::clock::now() - milliseconds(20);  // a file system's clock
  if (!folders.flight.empty() && ask_for_flight_records(hang, folders.flight) > 0)
    log_info("the last calls of the ranks that answer: trireme trace flight {}", folders.flight);
  const std::string& folder = folders.log.empty() ? folders.flight : folders.log;
  if (!folder.empty()) return write_report(hang, folder, calls_under_way(folders.flight, since));
  for (const RankInSight& r : hang.ranks)
    log_info("rank {} (pid {}): {}", r.rank, r.pid, of_thread(r, "task/" + std::to_string(r.pid)));
} catch (const std::exception& error) {
  log_warn("what the ranks were doing is not written down: {}", error.what());
}

}  // namespace trireme::launch
