// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/faults/comm/calls.h"
#include "tests/faults/comm/forks.h"
#include "tests/support/backends.h"
#include "tests/support/namespaces.h"
#include "tests/support/ports.h"
#include "tests/support/processes.h"
#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/file.h"
#include "trireme/comm/start/run.h"
#include "trireme/store/server/tcp_server.h"

// Groups of processes of which something befalls one, or the link between two hosts, in the middle
// of a call: what the others raise, when, and whether they can build another group.
namespace trireme::testing {

/// Promises are in seconds of an idle machine.
constexpr double kCommSlack = 3;

/// What a survivor saw, and what its processes share with the test.
struct Seen {
  bool raised, left, rebuilt;
  int peer;
  double raised_after, leaving_took;  // seconds after the fault; seconds
  char kind[32], text[1536], rebuild_text[1024];
};
struct SharedPage {
  std::atomic<int64_t> struck;     // when, by Clock; 0: not yet
  std::atomic<bool> victim_comes;  // it is about to enter the call that it does not survive
  std::atomic<int> waiting;        // ranks about to enter the call whose link is cut
  std::atomic<int> port;
  Seen seen[8];
};
class SharedMemory {
 public:
  SharedMemory()
      : page_(static_cast<SharedPage*>(::mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE,
                                              MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    check<ResourceError>(page_ != MAP_FAILED, "mmap: {}", errno_text());
  }
  ~SharedMemory() { ::munmap(page_, sizeof(SharedPage)); }
  SharedMemory(const SharedMemory&) = delete;
  SharedPage* operator->() const { return page_; }

 private:
  SharedPage* page_;
};

inline int64_t now_count() { return Clock::now().time_since_epoch().count(); }
inline double seconds_from(int64_t struck) {
  return std::chrono::duration<double>(Clock::duration(now_count() - struck)).count();
}
inline void put(char* to, size_t size, const std::string& text) {
  std::snprintf(to, size, "%s", text.c_str());
}

/// A store that outlives groups, as a launcher has it, in a process of its own: on this host, or
/// host 0 of `hosts`.
class Keeper {
 public:
  explicit Keeper(const Hosts* hosts = nullptr) {
    const std::string name = std::filesystem::path(PrivateFolder("trireme-test").path()).filename();
    keeper_ = std::make_unique<Fork>([&] {
      if (hosts) enter_namespace(hosts->name(0));
      StoreServer::Options options;
      options.credentials = {"faults", std::nullopt};
      StoreServer server(options, hosts ? net::Endpoint::tcp({Hosts::address(0), 0})
                                        : net::Endpoint::unix_abstract(name));
      page_->port = server.endpoints()[0].address.port + 1;
      for (;;) ::pause();
    });
    if (!eventually([&] { return page_->port > 0 || keeper_->ended(); }) || keeper_->ended())
      throw std::runtime_error("no store");
    where = hosts ? "tcp://" + Hosts::address(0) + ":" + std::to_string(page_->port - 1)
                  : "unix:@" + name;
  }
  /// Of one group after the other.
  int next_attempt() { return attempts_ += 2; }
  std::string where;

 private:
  SharedMemory page_;
  std::unique_ptr<Fork> keeper_;
  int attempts_ = 0;
};

class CommJob {
 public:
  /// Without a keeper rank 0 serves the store.
  CommJob(CommCase what, Keeper* keeper, const Hosts* hosts = nullptr)
      : case_(std::move(what)),
        store_(keeper ? keeper->where : ""),
        attempt_(keeper ? keeper->next_attempt() : 0),
        hosts_(hosts) {
    for (int r = 0; r < case_.size; ++r)
      ranks_.push_back(std::make_unique<Fork>([this, r] { be(r); }));
  }

  const CommCase& what() const { return case_; }
  bool survives(int rank) const { return case_.fault == Fault::cut || rank != case_.victim; }
  /// Whether all survivors have ended, or their time is up.
  bool over() {
    if (patience_.expired()) return true;
    for (int r = 0; r < case_.size; ++r)
      if (survives(r) && !ranks_[static_cast<size_t>(r)]->ended()) return false;
    return true;
  }
  /// Whether the ranks that are not cut off wait in the call, or have ended.
  bool waits() {
    return page_->waiting >= std::min(case_.per_host, case_.size) ||
           std::any_of(ranks_.begin(), ranks_.end(), [](auto& r) { return r->ended(); });
  }
  /// The link has just been cut.
  void cut() { page_->struck = now_count(); }

  void check() {
    if (case_.fault != Fault::cut) {
      Fork& victim = *ranks_[static_cast<size_t>(case_.victim)];
      EXPECT_EQ(victim.ended(), !is_stop(case_.fault)) << case_.name();
      EXPECT_TRUE(is_stop(case_.fault) || victim.status() == SIGKILL) << case_.name();
    }
    for (int r = 0; r < case_.size; ++r) {
      if (!survives(r)) continue;
      const Seen& seen = page_->seen[r];
      const std::string who = fmt::format("{}, rank {}: {} after {:.2f} s: {}", case_.name(), r,
                                          seen.kind, seen.raised_after, seen.text);
      EXPECT_TRUE(ranks_[static_cast<size_t>(r)]->ended())
          << who
          << (seen.left     ? " (hung in the new group)"
              : seen.raised ? " (hung in leaving)"
                            : " (hung)");
      if (!seen.raised) {
        ADD_FAILURE() << who << " nothing raised; " << seen.rebuild_text;
        continue;
      }
      const double limit = seconds_of(is_stop(case_.fault) ? case_.timeout : Duration{});
      EXPECT_STREQ(seen.kind, is_stop(case_.fault) ? "Timeout" : "PeerLost") << who;
      EXPECT_LT(seen.raised_after, limit + 5 * kCommSlack) << who;
      if (is_stop(case_.fault)) {
        EXPECT_GT(seen.raised_after, 0.5 * limit) << who;
      }
      EXPECT_TRUE(names_who_is_gone(r, seen.text)) << who;
      EXPECT_LT(seen.leaving_took, 5 * kCommSlack) << who;
      EXPECT_TRUE(seen.rebuilt) << who << "; then: " << seen.rebuild_text;
    }
  }

 private:
  static double seconds_of(Duration d) { return std::chrono::duration<double>(d).count(); }
  int host(int rank) const { return case_.per_host ? rank / case_.per_host : 0; }

  bool names_who_is_gone(int rank, const std::string& text) const {
    auto named = [&](int r) {
      const std::string word = "rank " + std::to_string(r);
      for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        const auto rest = text.substr(at + word.size());
        for (const char* verb : {" (", " did not", " died", " is ", " has", ", recv", ", send", ":",
                                 ")", ", or the launcher)"})
          if (rest.rfind(verb, 0) == 0) return true;
      }
      return false;
    };
    if (case_.fault != Fault::cut) return named(case_.victim);
    for (int r = 0; r < case_.size; ++r)
      if (host(r) != host(rank) && named(r)) return true;
    return host(rank) != 0 && text.find("store") != std::string::npos;  // which is on host 0
  }

  void environment(int rank, int size, int attempt) const {
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
    ::setenv("TORCHELASTIC_RUN_ID", "faults", 1);
    ::setenv("TORCHELASTIC_RESTART_COUNT", std::to_string(attempt).c_str(), 1);
    ::setenv("TRIREME_STORE", store_.c_str(), 1);
    if (!store_.empty()) return;
    ::setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("LOCAL_WORLD_SIZE", std::to_string(size).c_str(), 1);
    ::setenv("MASTER_PORT", std::to_string(port_).c_str(), 1);
  }

  void strike() {
    page_->struck = now_count();
    ::raise(is_stop(case_.fault) ? SIGSTOP : SIGKILL);
    for (;;) ::pause();  // woken up: too late
  }

  /// The life of a rank.
  void be(int rank) {
    if (hosts_) {
      enter_namespace(hosts_->name(host(rank)));
      ::setenv("TRIREME_INSECURE", "1", 1);
    } else if (case_.per_host) {
      ::setenv("TRIREME_HOST_ID", std::to_string(host(rank)).c_str(), 1);
    }
    Seen& seen = page_->seen[rank];
    try {
      environment(rank, case_.size, attempt_);
      // Calls that take no limit of their own have the group's.
      Group g = init_process_group(
          {.backend = case_.backend, .timeout = case_.call->waits ? case_.timeout : kPlenty});
      try {
        calls(g);
      } catch (const Error& e) {
        seen.raised_after = page_->struck ? seconds_from(page_->struck) : -1;
        put(seen.kind, sizeof seen.kind, e.kind());
        put(seen.text, sizeof seen.text, e.what());
        seen.peer = e.peer();
        seen.raised = true;
      }
      const auto leaving = Clock::now();
      g = Group();
      seen.leaving_took = seconds_since(leaving);
      seen.left = true;
      rebuild(rank);
      seen.rebuilt = true;
    } catch (const std::exception& e) {
      put(seen.rebuild_text, sizeof seen.rebuild_text, e.what());
    }
  }

  /// Ends by an error, or by the fault.
  void calls(Group& g) {
    const bool is_victim = case_.fault != Fault::cut && g.rank() == case_.victim;
    for (int round = 0;; ++round) {
      if (round == 1 && case_.fault == Fault::cut) {
        if (host(g.rank()) == 0)
          ++page_->waiting;
        else  // what the others wait for can no longer come
          trireme::check<Error>(eventually([&] { return page_->struck != 0; }, kPlenty),
                                "nothing was cut");
      }
      const bool now = is_victim && round == 1;
      if (now && !is_inside(case_.fault)) strike();
      if (now) page_->victim_comes = true;
      // Their time counts from here.
      if (!is_victim && round == 1 && is_stop(case_.fault))
        trireme::check<Error>(eventually([&] { return page_->victim_comes || page_->struck != 0; },
                                         patience_.remaining()),
                              "the victim does not come");
      auto works = case_.call->post(g, case_);
      if (now) strike();
      for (Work& work : works) work.wait(round ? case_.timeout : kPlenty);
    }
  }

  /// The survivors, or those on this rank's side of the cut, as a group.
  void rebuild(int rank) {
    const bool on_store = case_.fault != Fault::cut || host(rank) == 0;
    int mine = 0, size = 0;
    for (int r = 0; r < case_.size; ++r) {
      if (!survives(r) || (case_.fault == Fault::cut && host(r) != host(rank))) continue;
      mine += r < rank;
      ++size;
    }
    InitOptions options{.backend = case_.backend, .timeout = std::chrono::seconds(20)};
    environment(mine, size, attempt_ + 1);
    if (!on_store) {
      ::unsetenv("TRIREME_STORE");
      options.init_method = "file://" + (folder_ / "meet");
      options.rank = mine;
      options.world_size = size;
    }
    Group g = init_process_group(options);
    at::Tensor t = at::full({100001}, mine + 1, at::kFloat);
    g.all_reduce(t).wait();
    trireme::check<Error>(t.eq(size * (size + 1) / 2).all().item<bool>(),
                          "wrong sum in the new group of {}", size);
    g.barrier();
  }

  const CommCase case_;
  const std::string store_;
  const int attempt_;
  const Hosts* hosts_;
  const int port_ = free_tcp_port();  // names the job where rank 0 serves
  PrivateFolder folder_{"trireme-faults"};
  SharedMemory page_;
  Deadline patience_ = Deadline::after(kPlenty);
  std::vector<std::unique_ptr<Fork>> ranks_;
};

/// All of them, some at once.
inline void expect_survivors_go_on(const std::vector<CommCase>& cases, size_t at_once,
                                   bool rank_0_serves = false) {
  std::optional<Keeper> keeper;
  if (!rank_0_serves) keeper.emplace();
  std::deque<CommCase> waiting(cases.begin(), cases.end());
  std::vector<std::unique_ptr<CommJob>> running;
  while (!waiting.empty() || !running.empty()) {
    while (!waiting.empty() && running.size() < at_once) {
      running.push_back(std::make_unique<CommJob>(waiting.front(), keeper ? &*keeper : nullptr));
      waiting.pop_front();
    }
    eventually([&] {
      return std::any_of(running.begin(), running.end(), [](auto& job) { return job->over(); });
    });
    std::erase_if(running, [](auto& job) {
      if (!job->over()) return false;
      job->check();
      return true;
    });
  }
}

}  // namespace trireme::testing
