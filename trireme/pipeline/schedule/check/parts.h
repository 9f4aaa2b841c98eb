// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/pipeline/schedule/check.h"

// The parts of the checker, in the order in which they run: each may rely on those before it.
namespace trireme::pipeline::checking {

struct Place {
  int rank = -1, position = -1;
  bool there() const { return rank >= 0; }
};

/// Where each action is: of each kind but units, for each stage and micro-batch.
class Index {
 public:
  explicit Index(const Schedule& schedule)
      : micro_batches_(schedule.micro_batches),
        places_(static_cast<size_t>(ActionKind::unshard) * static_cast<size_t>(schedule.stages()) *
                static_cast<size_t>(schedule.micro_batches)),
        stages_(schedule.stages()) {}

  Place& at(ActionKind kind, int stage, int micro_batch) {
    return places_[slot(kind, stage, micro_batch)];
  }
  Place at(ActionKind kind, int stage, int micro_batch) const {
    return places_[slot(kind, stage, micro_batch)];
  }
  /// Of B or I.
  Place input_gradient(int stage, int micro_batch) const {
    const Place full = at(ActionKind::backward, stage, micro_batch);
    return full.there() ? full : at(ActionKind::input_gradient, stage, micro_batch);
  }

 private:
  size_t slot(ActionKind kind, int stage, int micro_batch) const {
    return (static_cast<size_t>(kind) * static_cast<size_t>(stages_) +
            static_cast<size_t>(stage)) *
               static_cast<size_t>(micro_batches_) +
           static_cast<size_t>(micro_batch);
  }
  int micro_batches_;
  std::vector<Place> places_;
  int stages_;
};

using Result = std::optional<Finding>;

/// "rank 1, action 4 (1F2)".
std::string where(const Schedule& schedule, Place place);
Finding finding(const Schedule& schedule, Fault fault, Place place, const std::string& sentence);
/// With several places in brackets, one a rank at most.
std::string draw_lists(const Schedule& schedule, const std::vector<Place>& marked);

Result fill(const Schedule& schedule, Index& index);                       // each action once
Result check_complete(const Schedule& schedule, const Index& index);       // and none missing
Result check_order(const Schedule& schedule, const Index& index);          // within each rank
Result check_messages(const Schedule& schedule, const Index& index);       // matched, in place
Result check_execution(const Schedule& schedule, const Index& index, const CheckOptions& options);
Result check_memory(const Schedule& schedule, const CheckOptions& options);
Result check_units(const Schedule& schedule);

}  // namespace trireme::pipeline::checking
