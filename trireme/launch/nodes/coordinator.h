// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trireme/launch/flags/options.h"
#include "trireme/launch/membership/membership.h"
#include "trireme/launch/restart_budget.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// The launcher that keeps an elastic job's store tells by it, from a thread of its own, who is in
/// the job: it reads the keys of nodes/elastic_keys.h that launchers write, and writes the others.
class Coordinator {
 public:
  /// `store`: a connection of its own.
  Coordinator(std::unique_ptr<Store> store, const RunOptions& options);
  /// Within a tenth of a second.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;

 private:
  void run();
  void look();
  void see_arrivals();
  void see_departures();
  void see_workers_end();
  void act(const std::vector<MembershipAction>& actions);
  void announce(const Generation& generation);
  void ended();
  void end_job(const std::string& how);

  const std::unique_ptr<Store> store_;
  Membership membership_;
  struct Launcher {
    bool ended = true;  // its workers of the generation
    bool leaves = false;
  };
  std::map<std::string, Launcher> here_;  // by token
  int64_t arrivals_ = 0;
  RestartBudget restarts_;
  bool over_ = false;  // the job
  bool broken_off_ = false, well_ = true;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace trireme::launch
