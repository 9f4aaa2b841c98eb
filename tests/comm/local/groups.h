// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/ranks.h"

// Ranks that make groups of some of them, as threads or as processes, with the same body.
namespace trireme::testing {

/// One rank: its engine in the world, and those in groups that it made.
class World {
 public:
  using MakeHost =
      std::function<std::unique_ptr<local::Host>(int rank, int size, const std::string& name)>;
  World(MakeHost make, int rank, int size, Duration timeout)
      : make_(std::move(make)),
        timeout_(timeout),
        all(std::make_unique<local::Engine>(make_(rank, size, "world"), timeout)) {}
  ~World() {
    groups_.clear();  // before the root
  }

  /// A group of these ranks; all of them call it.
  local::Engine& group(const std::string& name, const std::vector<int>& members) {
    const auto mine = std::find(members.begin(), members.end(), rank()) - members.begin();
    check<UsageError>(mine < static_cast<long>(members.size()), "rank {} is not in {}", rank(),
                      name);
    groups_.push_back(std::make_unique<local::Engine>(
        make_(static_cast<int>(mine), static_cast<int>(members.size()), name), timeout_, all.get(),
        members, name));
    return *groups_.back();
  }
  int rank() const { return all->rank(); }
  int size() const { return all->size(); }
  void fail(const std::string& why) {
    for (auto& g : groups_) g->fail_with(why);
    all->fail_with(why);
  }

 private:
  MakeHost make_;
  Duration timeout_;

 public:
  std::unique_ptr<local::Engine> all;

 private:
  std::vector<std::unique_ptr<local::Engine>> groups_;
};

using WorldBody = std::function<void(World&)>;

/// What each rank threw, and after how many seconds.
struct Ended {
  std::string what;
  double after = 0;
};

inline Ended end_of(World& world, const WorldBody& body) {
  const auto begin = Clock::now();
  Ended ended;
  ended.what = outcome_of([&] { body(world); });
  ended.after = seconds_since(begin);
  if (!ended.what.empty()) world.fail(ended.what);
  return ended;
}

inline std::vector<Ended> worlds_as_threads(int n, const WorldBody& body,
                                            Duration timeout = std::chrono::seconds(30)) {
  auto shared = std::make_shared<local::ThreadWorld>(n);
  std::vector<Ended> ended(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      ThreadRankScope label(r);
      World world(
          [&](int rank, int size, const std::string& name) {
            return local::thread_host(name == "world" ? shared : shared->child(name, size), rank);
          },
          r, n, timeout);
      ended[static_cast<size_t>(r)] = end_of(world, body);
    });
  for (auto& t : threads) t.join();
  return ended;
}

inline std::vector<Ended> worlds_as_processes(int n, const WorldBody& body,
                                              Duration timeout = std::chrono::seconds(30)) {
  PrivateFolder folder;
  auto outcomes = as_processes(
      n,
      [&](local::Engine& outer) {  // only says which rank this is
        World world(
            [&](int rank, int size, const std::string& name) {
              auto exchange = folder_exchange(folder.path());
              local::Exchange named{
                  [=](const std::string& k, const std::string& v) { exchange.set(name + k, v); },
                  [=](const std::string& k, Deadline d) { return exchange.get(name + k, d); }};
              return local::process_host(rank, size, named, Deadline::after(timeout));
            },
            outer.rank(), n, timeout);
        const Ended ended = end_of(world, body);
        if (!ended.what.empty()) throw Error(fmt::format("{:.3f} {}", ended.after, ended.what));
      },
      timeout);
  std::vector<Ended> all;
  for (std::string o : outcomes) {
    if (o.rfind("Error: ", 0) == 0) o = o.substr(7);
    const size_t space = o.find(' ');
    all.push_back({space == std::string::npos ? o : o.substr(space + 1), std::atof(o.c_str())});
  }
  return all;
}

}  // namespace trireme::testing
