// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/rank_label.h"

namespace trireme {
namespace {

struct Point {
  std::string name, action;
  int argument = 0;
  int at_visit = 0;  // 0: every visit
  int rank = -1;     // -1: any
  int visits = 0;
};

struct FailpointState {
  std::atomic<bool> armed{false};
  std::mutex mutex;
  std::vector<Point> points;
};

FailpointState& failpoint_state() {
  static FailpointState* s = new FailpointState;
  return *s;
}

int number(const std::string& text, const std::string& whole) {
  char* end = nullptr;
  long value = std::strtol(text.c_str(), &end, 10);
  check<UsageError>(!text.empty() && !*end, "failpoint '{}': '{}' is not a number", whole, text);
  return static_cast<int>(value);
}

Point parse(const std::string& text) {
  Point p;
  auto equals = text.find('=');
  check<UsageError>(equals != std::string::npos, "failpoint '{}': write name=action", text);
  std::string left = text.substr(0, equals);
  p.action = text.substr(equals + 1);
  if (auto hash = left.find('#'); hash != std::string::npos) {
    p.rank = number(left.substr(hash + 1), text);
    left.resize(hash);
  }
  if (auto at = left.find('@'); at != std::string::npos) {
    p.at_visit = number(left.substr(at + 1), text);
    left.resize(at);
  }
  p.name = left;
  if (auto open = p.action.find('('); open != std::string::npos) {
    check<UsageError>(p.action.back() == ')', "failpoint '{}': missing ')'", text);
    p.argument = number(p.action.substr(open + 1, p.action.size() - open - 2), text);
    p.action.resize(open);
  }
  for (const char* known : {"kill", "exit", "throw", "stop", "sleep", "error"})
    if (p.action == known) return p;
  fail<UsageError>(
      "failpoint '{}': unknown action; use kill, exit(N), throw, stop, sleep(MS) or error(ERRNO)",
      text);
}

const bool loaded_from_environment = [] {
  if (const char* text = std::getenv("TRIREME_FAILPOINTS")) {
    try {
      set_failpoints(text);
    } catch (const Error& e) {
      std::string line = std::string("trireme: error: TRIREME_FAILPOINTS: ") + e.what() + "\n";
      [[maybe_unused]] auto n = ::write(2, line.data(), line.size());
    }
  }
  return true;
}();

}  // namespace

void set_failpoints(const std::string& text) {
  std::vector<Point> points;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find(',', begin);
    if (end == std::string::npos) end = text.size();
    if (end > begin) points.push_back(parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  std::lock_guard lock(failpoint_state().mutex);
  failpoint_state().points = std::move(points);
  failpoint_state().armed = !failpoint_state().points.empty();
}

bool detail::failpoints_armed() { return failpoint_state().armed.load(std::memory_order_relaxed); }

int detail::visit_failpoint(const char* name) {
  Point hit;
  {
    std::lock_guard lock(failpoint_state().mutex);
    for (auto& p : failpoint_state().points) {
      if (p.name != name || (p.rank >= 0 && p.rank != thread_rank())) continue;
      ++p.visits;
      if (p.at_visit == 0 || p.visits == p.at_visit) hit = p;
    }
  }
  if (hit.action == "kill") ::kill(::getpid(), SIGKILL);
  if (hit.action == "stop") ::kill(::getpid(), SIGSTOP);
  if (hit.action == "exit") ::_exit(hit.argument);
  if (hit.action == "sleep") std::this_thread::sleep_for(std::chrono::milliseconds(hit.argument));
  if (hit.action == "throw") throw Error(fmt::format("failpoint {} threw, as asked", name));
  return hit.action == "error" ? hit.argument : 0;
}

}  // namespace trireme
