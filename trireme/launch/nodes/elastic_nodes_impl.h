// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/membership/announcement.h"
#include "trireme/launch/nodes/coordinator.h"
#include "trireme/launch/nodes/elastic_nodes.h"
#include "trireme/launch/nodes/neighbours.h"
#include "trireme/launch/nodes/over_watch.h"
#include "trireme/launch/nodes/signpost.h"

namespace trireme::launch {

/// A launcher has a store of its own from the beginning: where it stands is written there, and if
/// it is to keep the job's store one day, that is the one.
class ElasticNodes final : public Nodes {
 public:
  ElasticNodes(const RunOptions& options, Meeting meeting);
  ~ElasticNodes() override;

  /// Until the first generation is there, or none will be. PeerLost: the store is gone before, or
  /// no longer the one where nodes come.
  void gather(const std::function<bool()>& asked_to_stop);

  int node_rank() const override { return node_; }
  const std::vector<int>& workers_of_nodes() const override { return workers_; }
  std::string store_address() const override { return address_; }
  Begun begin(int, const std::function<bool()>& asked_to_stop) override;
  std::unique_ptr<Store> job_store() override;
  std::optional<Door> door() const override { return door_; }
  std::unique_ptr<Store> own_table() override;
  int fd() const override { return watch_->fd(); }
  std::optional<StopCause> stopped() override;
  StopCause stop(const StopCause& ours) override;
  bool come_and_go() const override { return true; }
  void leaves() override;
  std::optional<StopCause> why_peers_are_lost() override;
  std::optional<StopCause> finish(const End& here,
                                  const std::function<bool()>& asked_to_stop) override;

 private:
  static Begun ended(int exit_code);
  static std::string new_token();
  void agree();
  /// To the store where the job is now.
  void come();
  void coordinate(CoordinatorStart start);
  void say_that_it_waits(Clock::time_point since);
  /// Within a moment, if there is one that this node has not seen.
  std::optional<Announcement> next_generation();
  /// nullopt: it is not a member, or the generation is over already.
  std::optional<Begun> take_part(const Announcement& announcement,
                                 const std::function<bool()>& asked_to_stop);
  /// By the first of the members. Their clocks are not compared: nobody waits for one that may be
  /// gone.
  bool are_alike(const std::vector<Member>& members);
  /// False: it follows another launcher, and so leaves this store.
  bool accept(const Announcement& announcement);
  /// nullopt: the generation is over before, or the deadline has passed, or asked to stop.
  std::optional<std::string> wait_for(const std::string& key,
                                      const std::function<bool()>& asked_to_stop,
                                      Deadline deadline = Deadline::never());
  Begun job_is_over(const std::string& how) const;
  void wait_for_over(Deadline deadline, const std::function<bool()>& asked_to_stop);
  void note(const std::string& over);
  void wait_until_all_ended();

  // elastic_nodes_move.cc: from one store to another, and away
  void stand_by(const std::string& host);
  void lose_store(const Error& error);
  /// The store is left in order, or this node has been asked to follow another, or it has opened a
  /// store at the endpoint of a job whose store is elsewhere.
  void look_for_a_reason_to_move();
  void move_to(std::unique_ptr<Store> store, const std::string& address);
  /// Begun: the launcher ends. nullopt: it has a store again, or has been asked to stop.
  std::optional<Begun> go_on_elsewhere(const std::function<bool()>& asked_to_stop);
  void keep_store(int followers);
  /// Also by the watch's thread. Two launchers that each keep a store of one name would be two
  /// jobs.
  void see_whose_job_it_is(Store& store) const;
  StopCause store_is_lost(const std::string& why) const;
  void leave();

  const RunOptions& options_;
  const net::Credentials credentials_;
  const Door door_;
  bool keeps_;  // the job's store
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<Store> store_;  // the job's
  std::unique_ptr<Store> table_;  // its own
  std::string address_;           // of the job's store
  const std::string own_address_;
  std::unique_ptr<EtcdPublication> publication_;
  Neighbours neighbours_;
  Member us_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Signpost> signpost_;
  int64_t generation_ = -1;  // the newest that this node has seen
  int node_ = 0;
  std::vector<int> workers_;
  std::vector<std::string> differences_;  // of the members, as they were said
  std::string keeper_;                    // the token of whose store it uses; "": not known
  Announcement last_;                     // that it has accepted or, never a member, seen
  bool member_ = false;                   // it has accepted one
  bool last_has_begun_ = false;           // so it is known here
  bool yielded_ = false;
  bool said_ = false;       // that it waits
  bool abandoned_ = false;  // those that had come here meet elsewhere
  bool leaving_ = false;
  bool ended_ = true;              // this node's workers of the generation
  std::atomic<bool> lost_{false};  // the store
  std::optional<StopCause> cause_;
  std::unique_ptr<OverWatch> watch_;
};

}  // namespace trireme::launch
