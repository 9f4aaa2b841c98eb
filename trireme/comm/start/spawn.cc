// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/comm/start/run.h"
#include "trireme/rendezvous/generations.h"

extern char** environ;

// spawn(): starts this program again, once per rank. A rank recognises itself by TRIREME_SPAWN =
// "<call number>:<report file>", runs up to the same spawn call, does its part there and exits. No
// forked process goes on running this program's code: the exec leaves its threads and locks behind.
namespace trireme {
namespace {

// Names a spawn call of the program by its place and by how often it has been reached.
std::string name_of_call(CallSite site) {
  static std::mutex mutex;
  static std::map<std::string, int> reached;
  const std::string place = fmt::format("{}:{}", site.file, site.line);
  std::lock_guard lock(mutex);
  return fmt::format("{}#{}", place, reached[place]++);
}

/// A file next to a rank's report, which says that it reached its spawn call.
std::string reached_mark(const std::string& report) { return report + ".reached"; }

std::vector<std::string> arguments_of_this_program() {
  std::string raw = read_file("/proc/self/cmdline");
  std::vector<std::string> args;
  for (size_t at = 0; at < raw.size();) {
    size_t end = std::min(raw.find('\0', at), raw.size());
    args.push_back(raw.substr(at, end - at));
    at = end + 1;
  }
  return args;
}

[[noreturn]] void run_as_rank(const std::string& report, const std::function<void(Group)>& fn,
                              const SpawnOptions& options) {
  std::string why;
  try {
    write_file_atomic(reached_mark(report), "");
    Group group = init_process_group(
        {.backend = options.backend, .check = options.check, .timeout = options.timeout});
    try {
      fn(group);
    } catch (const std::exception& e) {
      group.abort(e.what());
      throw;
    }
  } catch (const Error& e) {
    why = std::string(e.kind()) + ": " + e.what();
  } catch (const std::exception& e) {
    why = e.what();
  }
  if (!why.empty()) write_file_atomic(report, why);
  // This process exists only to run fn; the parent does what main() does after spawn().
  std::exit(why.empty() ? kExitDone : kExitFailed);
}

struct Child {
  pid_t pid = -1;
  UniqueFd pidfd;
  bool ended = false;
  int status = 0;
};

pid_t start(const std::vector<std::string>& args, const std::vector<std::string>& env) {
  std::vector<char*> argv, envp;
  for (auto& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  for (auto& e : env) envp.push_back(const_cast<char*>(e.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();  // only async-signal-safe calls up to exec
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::execve("/proc/self/exe", argv.data(), envp.data());
    ::_exit(127);
  }
  check<ResourceError>(pid > 0, "cannot start a rank: {}", errno_text());
  return pid;
}

}  // namespace

void spawn(int n, const std::function<void(Group)>& fn, const SpawnOptions& options,
           CallSite site) {
  check<UsageError>(n >= 1, "spawn: {} ranks", n);
  const std::string call = name_of_call(site);
  if (const char* self = std::getenv("TRIREME_SPAWN")) {
    const std::string text = self;
    const auto colon = text.find(':');
    if (text.substr(colon + 1) != call)
      return;  // an earlier spawn of the program: the parent did it
    run_as_rank(text.substr(0, colon), fn, options);
  }

  PrivateFolder folder("trireme-spawn");
  unsigned char random[8];
  if (::getrandom(random, sizeof random, 0) != sizeof random)
    fail<ResourceError>("no random numbers: {}", errno_text());
  std::string job = "spawn-";
  for (unsigned char b : random) job += fmt::format("{:02x}", b);
  std::vector<std::string> args = arguments_of_this_program();
  if (!options.args.empty()) {
    args.resize(1);
    args.insert(args.end(), options.args.begin(), options.args.end());
  }

  std::vector<Child> children(static_cast<size_t>(n));
  auto kill_all = [&](int signal) {
    for (auto& c : children)
      if (c.pid > 0 && !c.ended) ::kill(c.pid, signal);
  };
  auto report_of = [&](int r) { return folder / ("rank" + std::to_string(r)); };
  try {
    for (int r = 0; r < n; ++r) {
      std::vector<std::string> env;
      for (char** e = environ; *e; ++e) {
        const std::string_view entry(*e);
        const auto name = entry.substr(0, entry.find('='));
        bool ours = false;
        for (const char* taken :
             {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
              "TRIREME_SPAWN", "TRIREME_STORE", kMemberVariable, "MASTER_ADDR", "MASTER_PORT",
              "GROUP_RANK", "ROLE_NAME", "ROLE_RANK", "TRIREME_ROLE", "TRIREME_ROLE_RANK",
              "TRIREME_ROLE_SIZE"})
          ours = ours || name == taken;
        if (!ours) env.emplace_back(entry);
      }
      if (options.env)
        for (const std::string& entry : options.env(r)) env.push_back(entry);
      env.push_back(fmt::format("RANK={}", r));
      env.push_back(fmt::format("LOCAL_RANK={}", r));
      env.push_back(fmt::format("WORLD_SIZE={}", n));
      env.push_back(fmt::format("LOCAL_WORLD_SIZE={}", n));
      env.push_back("TORCHELASTIC_RUN_ID=" + job);
      env.push_back(fmt::format("TRIREME_SPAWN={}:{}", report_of(r), call));
      Child& c = children[static_cast<size_t>(r)];
      c.pid = start(args, env);
      c.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, c.pid, 0)));
    }
    int first = -1;  // the first rank that failed
    std::string cause;
    Deadline grace = Deadline::never();
    for (int running = n; running > 0;) {
      std::vector<pollfd> fds;
      for (auto& c : children)
        if (!c.ended) fds.push_back({c.pidfd.get(), POLLIN, 0});
      ::poll(fds.data(), fds.size(), grace.poll_ms(1000));
      for (int r = 0; r < n; ++r) {
        Child& c = children[static_cast<size_t>(r)];
        if (c.ended || ::waitpid(c.pid, &c.status, WNOHANG) != c.pid) continue;
        c.ended = true;
        --running;
        const bool done = WIFEXITED(c.status) && WEXITSTATUS(c.status) == 0;
        const bool reached = ::access(reached_mark(report_of(r)).c_str(), F_OK) == 0;
        if (done && reached) continue;
        std::string why = WIFSIGNALED(c.status)
                              ? fmt::format("killed by signal {} ({})", WTERMSIG(c.status),
                                            ::strsignal(WTERMSIG(c.status)))
                              : fmt::format("exit code {}", WEXITSTATUS(c.status));
        if (done)
          why =
              "it ended without reaching this spawn call: a rank is this program started again, "
              "and with its arguments it must reach the same call as many times";
        if (::access(report_of(r).c_str(), R_OK) == 0) why = read_file(report_of(r));
        const bool consequence = why.rfind("PeerLost", 0) == 0 || why.rfind("Aborted", 0) == 0 ||
                                 why.rfind("Timeout", 0) == 0;
        if (first < 0 || (cause.rfind("PeerLost", 0) == 0 && !consequence)) first = r, cause = why;
        if (grace.is_never()) grace = Deadline::after(std::chrono::seconds(4));
      }
      if (grace.expired()) kill_all(SIGKILL);
    }
    if (first >= 0)
      throw PeerLost(fmt::format("spawn: rank {} failed: {}", first, cause),
                     {-1, first, "spawn", -1});
  } catch (...) {
    kill_all(SIGKILL);
    for (auto& c : children)
      if (c.pid > 0 && !c.ended) ::waitpid(c.pid, &c.status, 0);
    throw;
  }
}

}  // namespace trireme
