// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

#include "trireme/base/fd.h"
#include "trireme/net/socket.h"

namespace trireme::testing {

/// A forked process that does `body` and speaks with the test in short messages. Fork it before the
/// test starts threads. It is killed and reaped at the end at the latest.
class Child {
 public:
  /// The child's end.
  class Parent {
   public:
    explicit Parent(int fd) : fd_(fd) {}
    void tell(const std::string& text) const {
      [[maybe_unused]] auto n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
    }
    std::string hear() const { return receive(fd_); }

   private:
    int fd_;
  };

  explicit Child(const std::function<void(const Parent&)>& body) {
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
      throw std::runtime_error("socketpair");
    ours_.reset(fds[0]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(fds[0]);
      Parent parent(fds[1]);
      try {
        body(parent);
      } catch (const std::exception& error) {
        parent.tell(std::string("error: ") + error.what());
        ::_exit(1);
      }
      ::_exit(0);
    }
    ::close(fds[1]);
    if (pid_ < 0) throw std::runtime_error("fork");
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void tell(const std::string& text) const {
    [[maybe_unused]] auto n = ::send(ours_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  /// Its next message; "" when it has ended, or says nothing for long.
  std::string hear(Duration patience = std::chrono::seconds(30)) const {
    if (!net::poll_until(ours_.get(), POLLIN, Deadline::after(patience))) return "";
    return receive(ours_.get());
  }
  void send(int signal) const {
    if (pid_ > 1) ::kill(pid_, signal);
  }
  void kill() {
    if (pid_ <= 1) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  /// Its exit code, once it ends; 128 + n: signal n.
  int wait() {
    int status = 0;
    if (pid_ <= 1 || ::waitpid(pid_, &status, 0) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static std::string receive(int fd) {
    std::string text(8192, '\0');
    ssize_t n = ::recv(fd, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }

  UniqueFd ours_;
  pid_t pid_ = -1;
};

}  // namespace trireme::testing
