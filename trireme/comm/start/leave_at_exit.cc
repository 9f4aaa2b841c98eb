// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/start/leave_at_exit.h"

#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "trireme/base/log.h"
#include "trireme/base/process/process_mark.h"

namespace trireme::detail {
namespace {

/// One per process, as there is one exit().
struct LastWords {
  const ProcessMark made_in;
  std::mutex mutex;
  std::map<const LeaveAtExit*, std::function<void()>> say;
};

void say_last_words(int status, void* words) {
  auto& all = *static_cast<LastWords*>(words);
  if (status != 0 || !all.made_in.is_here()) return;
  std::lock_guard lock(all.mutex);
  for (auto& [of, say] : all.say) try {
      say();
    } catch (const std::exception& e) {  // its receiver is gone
      log_debug("cannot send this rank's last report: {}", e.what());
    }
}

LastWords& last_words() {
  static LastWords* const all = [] {
    auto* made = new LastWords;  // static objects may hold groups, and are destroyed at exit()
    ::on_exit(say_last_words, made);
    return made;
  }();
  return *all;
}

}  // namespace

LeaveAtExit::LeaveAtExit(std::function<void()> say) {
  LastWords& all = last_words();
  std::lock_guard lock(all.mutex);
  all.say[this] = std::move(say);
}

LeaveAtExit::~LeaveAtExit() {
  LastWords& all = last_words();
  std::lock_guard lock(all.mutex);
  all.say.erase(this);
}

}  // namespace trireme::detail
