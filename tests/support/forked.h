// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "tests/support/processes.h"
#include "trireme/base/check.h"

// A child of a fork() that has copies of its parent's objects.
inline bool in_forked_child = false;
#ifdef __SANITIZE_ADDRESS__
// What the parent's other threads hold is nobody's in the child, where LeakSanitizer looks as it
// exits.
extern "C" inline __attribute__((used, visibility("default"))) int __lsan_is_turned_off() {
  return in_forked_child;
}
#endif

namespace trireme::testing {

/// How a child ends: exit() destroys what is static, _exit() nothing.
enum class ChildEnd { exit, exit_at_once };

/// A forked process that runs `body`, whose text ("": all is well) goes to stderr.
class ForkedChild {
 public:
  ForkedChild(ChildEnd end, const std::function<std::string()>& body) {
    pid_ = ::fork();
    check<Error>(pid_ >= 0, "fork: {}", errno_text());
    if (pid_ > 0) return;
    in_forked_child = true;
    ::alarm(60);  // one that hangs is no child of anybody's for long
    std::string wrong;
    try {
      wrong = body();
    } catch (const std::exception& e) {
      wrong = std::string("it threw: ") + e.what();
    }
    if (!wrong.empty()) std::fprintf(stderr, "forked child: %s\n", wrong.c_str());
    if (end == ChildEnd::exit_at_once) ::_exit(wrong.empty() ? 0 : 1);
    std::exit(wrong.empty() ? 0 : 1);
  }
  ForkedChild(const ForkedChild&) = delete;
  ~ForkedChild() {
    if (ended_) return;
    send_signal(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  /// "": it ended, and all was well. Asks again and again, so that the parent can do its part
  /// meanwhile.
  std::string ended(Duration patience = std::chrono::seconds(30)) {
    int status = 0;
    if (!eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, patience))
      return "the child does not end";
    ended_ = true;
    if (WIFSIGNALED(status)) return fmt::format("the child died of signal {}", WTERMSIG(status));
    return WEXITSTATUS(status) ? fmt::format("the child ended with {}", WEXITSTATUS(status)) : "";
  }

 private:
  pid_t pid_;
  bool ended_ = false;
};

/// "": the call was refused as one of a forked child, naming both processes.
inline std::string refused_in_child(const char* what, const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& e) {
    const std::string text = e.what(), parent = fmt::format("process {}", ::getppid()),
                      child = fmt::format("process {}", ::getpid());
    for (const std::string& part : {parent, child, std::string("after the fork")})
      if (text.find(part) == std::string::npos)
        return fmt::format("{}: no '{}' in: {}\n", what, part, text);
    return "";
  } catch (const std::exception& e) {
    return fmt::format("{}: {}\n", what, e.what());
  }
  return fmt::format("{} was not refused\n", what);
}

}  // namespace trireme::testing
