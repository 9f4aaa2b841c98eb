// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/process/keeper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/process/children.h"
#include "trireme/launch/process/proc_text.h"

namespace trireme::launch {
namespace {

constexpr pid_t kAllIsWell = 0;

[[noreturn]] void keep(int orders, const std::string& cookie, const std::string& folder) {
  ::prctl(PR_SET_NAME, "trireme-keeper");
  ::prctl(PR_SET_PDEATHSIG, 0);
  ::setpgid(0, 0);
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  // Whoever reads the launcher's output must see its end, not ours. Every other descriptor of the
  // launcher closes too.
  orders = ::fcntl(orders, F_DUPFD, 10);
  int nothing = ::open("/dev/null", O_RDWR);
  for (int fd : {0, 1, 2}) ::dup2(nothing, fd);
  ::dup2(orders, 3);
  ::close_range(4, ~0U, 0);
  if (::chdir("/") != 0) ::_exit(1);

  std::vector<pid_t> groups;
  while (true) {
    pid_t order;
    ssize_t n = ::recv(3, &order, sizeof order, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n == static_cast<ssize_t>(sizeof order)) {
      if (order == kAllIsWell) ::_exit(0);
      if (order > 0)
        groups.push_back(order);
      else
        std::erase(groups, -order);
      continue;
    }
    break;  // the launcher is gone
  }
  kill_everything(groups, cookie);
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
  ::_exit(0);
}

}  // namespace

std::string job_cookie(const std::string& folder) {
  return "TRIREME_SECRET_FILE=" + folder + "/secret";
}

// A process that was starting another while we looked shows up in the next round.
int kill_everything(const std::vector<pid_t>& groups, const std::string& cookie) {
  int killed = 0;
  for (int round = 0; round < 5; ++round) {
    for (pid_t group : groups) ::kill(-group, SIGKILL);
    bool found = false;
    for (pid_t pid : all_processes()) {
      if (pid == ::getpid()) continue;
      auto environment = read_if_there("/proc/" + std::to_string(pid) + "/environ");
      if (!environment) continue;
      std::string text = '\0' + *environment + '\0';
      if (text.find('\0' + cookie + '\0') == std::string::npos) continue;
      killed += ::kill(pid, SIGKILL) == 0;
      found = true;
    }
    if (!found && round > 0) return killed;
    ::usleep(20'000);
  }
  return killed;
}

Keeper::Keeper(std::string cookie, std::string folder) {
  // The folder outlives the chdir above.
  if (!folder.empty()) folder = std::filesystem::absolute(folder).string();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    fail<ResourceError>("cannot make a socket pair: {}", errno_text());
  UniqueFd ours(ends[0]), theirs(ends[1]);
  pid_ = ::fork();
  check<ResourceError>(pid_ >= 0, "cannot start a process: {}", errno_text());
  if (pid_ == 0) {
    ours.release();  // closed by close_range, or by dup2 over it
    keep(theirs.get(), cookie, folder);
  }
  ::setpgid(pid_, pid_);
  orders_ = std::move(ours);
}

void Keeper::watch(pid_t process_group) { send(process_group); }
void Keeper::forget(pid_t process_group) { send(-process_group); }

void Keeper::send(pid_t order) {
  if (is_gone_ || ::send(orders_.get(), &order, sizeof order, MSG_NOSIGNAL) ==
                      static_cast<ssize_t>(sizeof order))
    return;
  is_gone_ = true;
  log_warn(
      "the launcher's keeper process (pid {}) is gone ({}): the job goes on, but if the launcher "
      "is killed, too, nobody cleans up after it",
      pid_, errno_text());
}

Keeper::~Keeper() {
  ::send(orders_.get(), &kAllIsWell, sizeof kAllIsWell, MSG_NOSIGNAL);
  orders_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace trireme::launch
