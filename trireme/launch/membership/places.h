// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/rendezvous/generations.h"

namespace trireme::launch {

/// Which workers of a job train together, where those that are left keep their processes when one
/// ends (elastic.mode in_process). A place is a rank of the job's first workers; whoever stands in
/// it has a number unlike any other worker's. A generation holds those that train: if there is one
/// for each place, in the order of places; else those of the generation before, in their order
/// there, and then the new ones, because the first ones train where not all can, and a new one has
/// no state.
///
/// The launchers of several hosts have one such object, which lies in the job's store as a text:
/// whoever has an event reads it, changes it and writes it back if nobody else has meanwhile, else
/// begins again. Pure: events in, generations out.
class TRIREME_API Places {
 public:
  /// `places` workers, 0 to places - 1, begin as generation 0.
  explicit Places(int places);
  /// The text() of so many places (docs/control_protocol.md). Corrupt: it is not one. Mismatch: it
  /// is one of another version.
  static Places read(std::string_view text, int places);
  /// The generation, encoded, with all else that there is to know.
  std::string text() const;

  const trireme::Generation& generation() const { return generation_; }
  /// Who stands in a place now.
  int64_t member_at(int place) const { return at(place).id; }
  /// The worker of this place has ended; returns the number of the one that is to be started there.
  int64_t lost(int place);
  /// The worker of this place waits to be taken in.
  void ready(int place);
  /// The worker of this place is not one of the first.
  bool is_new(int place) const { return member_at(place) != place; }
  /// How many workers have ended.
  int losses() const { return losses_; }
  /// Who is not in the generation and has not said that it is ready.
  std::vector<int> awaited() const;
  /// The next generation, if the members are others now. Nothing: they are the same, or nobody is
  /// left.
  std::optional<trireme::Generation> next();

 private:
  struct Place {
    int64_t id = 0;
    bool in = true;     // the generation
    bool ready = true;  // or waits for the next one
    TRIREME_FIELDS(id, in, ready)
  };
  struct Known {
    std::vector<Place> places;
    bool lost_one = false;
    int losses = 0;
    TRIREME_FIELDS(places, lost_one, losses)
  };
  /// What was read: some launchers may have written it.
  bool is_possible() const;
  const Place& at(int place) const { return places_.at(static_cast<size_t>(place)); }
  std::vector<Place> places_;
  bool lost_one_ = false;
  int losses_ = 0;
  trireme::Generation generation_;
};

}  // namespace trireme::launch
