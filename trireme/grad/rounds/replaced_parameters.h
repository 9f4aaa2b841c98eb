// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/grad/rounds/round_record.h"
#include "trireme/tensor/parameter_table.h"
#include "trireme/tensor/storage_mark.h"

namespace trireme {

/// Notices that parameters were exchanged behind a wrapper's back: torch::load() into its module,
/// Module::to(), set_data(), requires_grad_(). What a rank has noticed rides as one fact with the
/// round's record; where there is any, ranks compare what they found, so that all of them go on
/// with the same new values, or all throw.
class TRIREME_API ReplacedParameters {
 public:
  /// `wrapper`: its name in messages. The record's first round is still to come.
  ReplacedParameters(std::string wrapper, NamedTensors trained, NamedTensors frozen, Group group,
                     RoundRecord& record);

  /// Some parameter lies elsewhere than at the last look. This rank's; cheap.
  bool any() const { return !first().empty(); }
  /// The first one's name; "".
  std::string first() const;
  /// Each of them has the dtype, shape and device that it had.
  bool fit() const;
  /// Before the record leaves: notes what was exchanged since the last look. False: this rank
  /// cannot go on with it, and check() will say so on all.
  bool look() { return look({}); }
  /// `now`: the module's parameters as it lists them now; one that is another tensor under a known
  /// name is refused.
  bool look(const NamedTensors& now);
  /// The parameters lie where they are to lie: nothing to be told.
  void accept();
  /// After a round whose record was read, on every rank. True: parameters of every rank were
  /// replaced since the last check(), by the same values. Where not all ranks with a batch can go
  /// on alike it throws, then and in every later round: UsageError for another dtype, shape or
  /// device and for a frozen parameter that is to be trained; Mismatch that names parameter and
  /// ranks where they differ.
  bool check(const std::vector<bool>& has_batch);
  bool check() { return check(std::vector<bool>(static_cast<size_t>(group_.size()), true)); }
  /// The sentence of look(), where it was false; "".
  const std::string& refusal() const { return refusal_; }

 private:
  struct Watched {
    std::string name;
    at::Tensor tensor;
    StorageMark mark;
    bool trained = true;
    bool frozen_since = false;
  };
  void refuse(const Watched& w, const std::string& why);

  std::string wrapper_;
  std::vector<Watched> all_;
  Group group_;
  RoundRecord& record_;
  RoundRecord::Fact news_;
  struct Found {
    std::string line;   // of its values all but the hash
    at::Tensor values;  // or undefined
  };
  std::vector<Found> found_;  // since the last check()
  std::string refusal_;       // this rank's
  std::string mismatch_;      // all ranks'
};

}  // namespace trireme
