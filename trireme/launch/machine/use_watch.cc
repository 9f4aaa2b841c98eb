// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/machine/use_watch.h"

#include <unistd.h>

#include <algorithm>

#include "trireme/base/process/cpu_share.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/proc_text.h"

namespace trireme::launch {
namespace {

constexpr Duration kReadEvery = std::chrono::seconds(5);
constexpr size_t kMostProcesses = 1000;  // of one worker

/// Of user and system, its own and those of children that it has waited for.
std::optional<double> seconds_of(pid_t pid) {
  const auto text = read_if_there("/proc/" + std::to_string(pid) + "/stat");
  if (!text) return std::nullopt;
  const size_t name_end = text->rfind(')');  // pid (any name) state ppid …; utime is the 14th
  if (name_end == std::string::npos || name_end + 2 > text->size()) return std::nullopt;
  const auto fields = split(std::string_view(*text).substr(name_end + 2), ' ');
  if (fields.size() < 15) return std::nullopt;
  double ticks = 0;
  for (size_t i = 11; i < 15; ++i) ticks += static_cast<double>(parse_int(fields[i]).value_or(0));
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

std::optional<double> cpu_seconds_of_tree(pid_t pid) {
  std::optional<double> sum = seconds_of(pid);
  std::vector<pid_t> to_see{pid};
  for (size_t i = 0; sum && i < to_see.size() && i < kMostProcesses; ++i) {
    const std::string id = std::to_string(to_see[i]);
    const std::string children =
        read_if_there("/proc/" + id + "/task/" + id + "/children").value_or("");
    for (const std::string_view child : split(children, ' '))
      if (const auto number = parse_int(child)) {
        to_see.push_back(static_cast<pid_t>(*number));
        *sum += seconds_of(to_see.back()).value_or(0);
      }
  }
  return sum;
}

void UseWatch::watch(int rank, pid_t pid, double cpus) {
  const auto now = Clock::now();
  workers_.push_back({rank, pid, std::max(cpus, 1.0), now, now});
  if (next_.is_never()) next_ = Deadline::after(kReadEvery);
}

void UseWatch::read(Worker& worker) {
  if (const auto seconds = read_(worker.pid)) {
    // What an ended child had, whom nobody waited for, stays counted.
    worker.seconds = std::max(worker.seconds, *seconds);
    worker.end = Clock::now();
  }
}

void UseWatch::look() {
  if (!next_.expired()) return;
  next_ = Deadline::after(kReadEvery);
  for (Worker& worker : workers_)
    if (!worker.over) read(worker);
}

void UseWatch::ended(pid_t pid) {
  for (Worker& worker : workers_)
    if (worker.pid == pid && !worker.over) {
      read(worker);
      worker.over = true;
    }
}

std::string UseWatch::sentence() const {
  std::vector<RankShare> shares;
  for (const Worker& worker : workers_) {
    const Duration lived = worker.end - worker.begin;
    if (lived <= Duration::zero() || lived < worth_saying_) return "";
    const double wall = std::chrono::duration<double>(lived).count();
    shares.push_back({worker.rank, worker.seconds / (wall * worker.cpus)});
  }
  return busiest_and_idlest(shares);
}

}  // namespace trireme::launch
