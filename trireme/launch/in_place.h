// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/launch/membership/places.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// A launcher's end of what tells the workers of one attempt, through the job's store, with whom
/// they go on when one of them has ended (rendezvous/generations.h). Each launcher speaks of its
/// own workers, by their local ranks, and all change one text in the store (membership/places.h),
/// so that none of them decides for the others. Workers that never say that they can go on are left
/// alone. A store that does not answer is for others to see: nobody is replaced then. One thread.
class TRIREME_API InPlace {
 public:
  /// `workers_of_nodes` as in launch/placement.h; `node`: this launcher's.
  InPlace(std::unique_ptr<Store> store, int attempt, const std::vector<int>& workers_of_nodes,
          int node);

  /// For the worker of a local rank: the number in its environment.
  std::string member_at(int local_rank) const {
    return std::to_string(places_.member_at(first_ + local_rank));
  }
  /// Whether all of them can go on without one: each holds the state of a step, or waits to be
  /// taken in; those of other launchers, too. `living`: those of this one that live, without it.
  /// Nobody left: they cannot.
  bool can_go_on(const std::vector<int>& living);
  /// The worker of this place has ended, and those that are left are told. Another is to be started
  /// there. False: nobody is, because by now other launchers have replaced as many as may be
  /// (`left`, of which losses() told), or the store is gone.
  bool lost(int local_rank, int left);
  /// Whether a worker that this launcher started later is awaited.
  bool awaits_any() const { return !awaited().empty(); }
  /// Takes in those that are ready. Returns how many workers train now, if they are more; else 0.
  int take_in();
  /// Workers that were replaced in this attempt, on all hosts, as far as the store tells.
  int losses();

 private:
  std::vector<int> awaited() const;
  /// What the store says now.
  std::string refresh();
  template <class Change>
  std::optional<trireme::Generation> change(const Change& change);

  const std::unique_ptr<Store> store_;
  const int attempt_, first_, own_, all_;
  Places places_;
};

}  // namespace trireme::launch
