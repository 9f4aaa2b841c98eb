// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/shard/flat_parameters.h"
#include "trireme/shard/gather_buffer_pool.h"

namespace trireme {

/// Parameters that are gathered and dropped together: the state machine of ZeRO stage 3, and the
/// only one who moves data pointers.
///
///   sharded → gathering (gather) → whole (make_whole) → sharded (reshard)
///
/// Every rank makes the same calls of gather and make_whole on units in the same order.
class ParamUnit {
 public:
  enum class State { sharded, gathering, whole, whole_in_recompute };

  /// Takes the flats over; their members point at nothing from here on.
  ParamUnit(std::string name, std::vector<std::unique_ptr<FlatParameters>> flats, Group shards,
            GatherBufferPool& gather_buffers);
  ~ParamUnit();
  ParamUnit(const ParamUnit&) = delete;

  const std::string& name() const { return name_; }
  State state() const { return state_; }
  bool is_whole() const { return state_ == State::whole || state_ == State::whole_in_recompute; }
  std::vector<FlatParameters*> flats() const;
  int64_t elements() const;  // of a flat buffer, padding included

  /// This rank's parts come from the file soon, if they lie in one. Does not wait.
  void read_ahead();

  /// Asks for everybody's parts. Waits for this rank's own, if it lies in a file.
  void gather();
  void make_whole();
  /// Whole in the second run of a recomputation: backward follows at once, so nothing is dropped.
  void hold_for_backward();
  /// Drops what is whole, or comes. What reads a parameter after this reads address 0.
  void reshard();

  /// Members were given other values (FlatParameters): the shards take them, and what was gathered
  /// is dropped.
  bool replaced() const;
  void take_replaced();

 private:
  struct Part {
    std::unique_ptr<FlatParameters> flat;
    at::Tensor gather_buffer;
    Work work;
  };
  std::string name_;
  std::vector<Part> parts_;
  Group shards_;
  GatherBufferPool& gather_buffers_;
  State state_ = State::sharded;
};

}  // namespace trireme
