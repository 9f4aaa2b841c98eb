// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/local/engine.h"

// Ranks of the local engine for tests, as threads or as processes, with the same body. A body
// reports by throwing.
namespace trireme::testing {

using EngineBody = std::function<void(local::Engine&)>;

/// What each rank threw ("" where nothing), as "Kind: text".
using Outcomes = std::vector<std::string>;

inline std::string outcome_of(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const Error& e) {
    return std::string(e.kind()) + ": " + e.what();
  } catch (const std::exception& e) {
    return std::string("exception: ") + e.what();
  }
}

inline Outcomes as_threads(int n, const EngineBody& body,
                           Duration timeout = std::chrono::seconds(30)) {
  auto world = std::make_shared<local::ThreadWorld>(n);
  Outcomes outcomes(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      ThreadRankScope label(r);
      local::Engine engine(local::thread_host(world, r), timeout);
      outcomes[static_cast<size_t>(r)] = outcome_of([&] { body(engine); });
      if (!outcomes[static_cast<size_t>(r)].empty())
        engine.fail_with(outcomes[static_cast<size_t>(r)]);
    });
  for (auto& t : threads) t.join();
  return outcomes;
}

/// Values by key in a private folder: what the job's store does for a real job.
inline local::Exchange folder_exchange(const std::string& folder) {
  auto file = [folder](std::string key) {
    for (char& c : key)
      if (c == '/') c = '_';
    return folder + "/" + key;
  };
  return {[file](const std::string& key, const std::string& value) {
            write_file_atomic(file(key), value);
          },
          [file](const std::string& key, Deadline deadline) {
            while (::access(file(key).c_str(), R_OK) != 0) {
              check<Timeout>(!deadline.expired(), "no key {}", key);
              ::usleep(500);
            }
            return read_file(file(key));
          }};
}

/// Forks n ranks (the caller must have no other threads); waits for them up to `limit`, kills and
/// reaps what is left.
class Processes {
 public:
  Processes(int n, const EngineBody& body, Duration timeout = std::chrono::seconds(30)) {
    for (int r = 0; r < n; ++r) {
      int pipe_fds[2];
      if (::pipe(pipe_fds) != 0) fail<ResourceError>("pipe: {}", errno_text());
      pid_t pid = ::fork();
      if (pid == 0) {
        ::close(pipe_fds[0]);
        ThreadRankScope label(r);
        std::string outcome = outcome_of([&] {
          local::Engine engine(
              local::process_host(r, n, folder_exchange(folder_.path()), Deadline::after(timeout)),
              timeout);
          std::string inner = outcome_of([&] { body(engine); });
          if (!inner.empty()) engine.fail_with(inner);
          check<Error>(inner.empty(), "{}", inner);
        });
        if (outcome.rfind("Error: ", 0) == 0) outcome = outcome.substr(7);
        [[maybe_unused]] auto n_written = ::write(pipe_fds[1], outcome.data(), outcome.size());
        ::_exit(outcome.empty() ? 0 : 1);
      }
      ::close(pipe_fds[1]);
      pids_.push_back(pid);
      pipes_.emplace_back(pipe_fds[0]);
    }
  }
  ~Processes() {
    for (pid_t pid : pids_)
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  }
  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }

  Outcomes wait(Duration limit = std::chrono::seconds(60)) {
    Deadline deadline = Deadline::after(limit);
    Outcomes outcomes;
    for (size_t r = 0; r < pids_.size(); ++r) {
      int status = 0;
      pid_t got = 0;
      while ((got = ::waitpid(pids_[r], &status, WNOHANG)) == 0 && !deadline.expired())
        ::usleep(500);
      if (got == 0) {
        ::kill(pids_[r], SIGKILL);
        ::waitpid(pids_[r], &status, 0);
        outcomes.push_back("hung");
      } else {
        std::string text(4096, '\0');
        ssize_t n = ::read(pipes_[r].get(), text.data(), text.size());
        text.resize(n > 0 ? static_cast<size_t>(n) : 0);
        if (WIFSIGNALED(status)) text = "signal " + std::to_string(WTERMSIG(status));
        outcomes.push_back(text);
      }
      pids_[r] = -1;
    }
    return outcomes;
  }

 private:
  PrivateFolder folder_;
  std::vector<pid_t> pids_;
  std::vector<UniqueFd> pipes_;
};

inline Outcomes as_processes(int n, const EngineBody& body,
                             Duration timeout = std::chrono::seconds(30)) {
  return Processes(n, body, timeout).wait();
}

}  // namespace trireme::testing
