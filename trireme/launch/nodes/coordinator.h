// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/launch/flags/options.h"
#include "trireme/launch/membership/announcement.h"
#include "trireme/launch/membership/membership.h"
#include "trireme/launch/membership/succession.h"
#include "trireme/launch/nodes/claim_place.h"
#include "trireme/launch/nodes/neighbours.h"
#include "trireme/launch/restart_budget.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// What a coordinator goes on from.
struct CoordinatorStart {
  std::string us;     // the token of the launcher that keeps the store
  Announcement last;  // generation -1: the job begins
  /// Of those that may have begun each must agree to the next; the newest first.
  std::vector<Generation> before = {};
  int followers = 0;  // members of the last one that come, after the loss of its store
};

/// The launcher that keeps an elastic job's store tells by it, from a thread of its own, who is in
/// the job: it reads the keys of nodes/elastic_keys.h that launchers write, and writes the others.
class Coordinator {
 public:
  /// `store`: a connection of its own.
  Coordinator(std::unique_ptr<Store> store, const RunOptions& options,
              const net::Credentials& credentials, CoordinatorStart start);
  /// Within a tenth of a second.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  /// No generation begins any more.
  void retire() { retires_ = true; }

 private:
  void run();
  void look();
  void see_arrivals();
  void see_departures();
  void see_workers_end();
  void act(const std::vector<MembershipAction>& actions);
  void announce(const Generation& generation);
  void try_to_begin();
  struct Support {
    std::vector<std::string> accepted;
    std::map<std::string, Sight> sights;                // of the others
    std::vector<std::pair<Member, Standing>> promised;  // of those, by a promise alone
    bool complete = true;                               // else others may accept yet
  };
  Support support();
  void ask_those_that_came_back(Support& support);
  bool is_promise(const Standing& standing) const;
  bool promises_are_kept(const Support& support);
  void claim(Verdict verdict);
  void begun();
  void give_up(const std::string& sentence);
  void ended();
  int workers_replaced() const;
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
  // Of the generation that is announced:
  Announcement announced_;
  std::vector<Generation> before_;
  std::optional<Clock::time_point> waits_since_;  // for enough to accept it
  bool follows_loss_ = false;
  Duration silence_;  // of a member that is lost
  std::set<std::string> left_;
  Neighbours neighbours_;
  const std::unique_ptr<ClaimPlace> place_;
  const std::string us_;
  bool said_ = false;
  std::atomic<bool> stop_{false}, retires_{false};
  std::thread thread_;
};

}  // namespace trireme::launch
