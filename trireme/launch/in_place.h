// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/launch/membership/places.h"
#include "trireme/store/store.h"

namespace trireme::launch {

/// Tells the workers of one attempt on this host, through the job's store, with whom they go on
/// when one of them has ended (rendezvous/generations.h). Those that never say that they can are
/// left alone. One thread.
class TRIREME_API InPlace {
 public:
  InPlace(std::unique_ptr<Store> store, int attempt, int places);

  /// For the worker of a place: the number in its environment.
  std::string member_at(int place) const { return std::to_string(places_.member_at(place)); }
  /// Whether all of them can go on without one: each holds the state of a step, or waits to be
  /// taken in. `places`: those that live, without it; none: nobody can.
  bool can_go_on(const std::vector<int>& places) const;
  /// The worker of this place has ended, and those that are left are told. Another is to be started
  /// there.
  void lost(int place);
  /// Whether a worker that was started later is awaited.
  bool awaits_any() const { return !places_.awaited().empty(); }
  /// Takes in those that are ready. Returns how many workers train now, if they are more; else 0.
  int take_in();

 private:
  void announce(const trireme::Generation& generation);

  std::unique_ptr<Store> store_;
  const int attempt_;
  Places places_;
};

}  // namespace trireme::launch
