// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/steps/run_folder/retention.h"
#include "trireme/config/sections/checkpoint.h"

namespace trireme {

/// The steps in a run's folder with their held-out losses, and which of them stay. Rank 0's; its
/// trainer and its saver's thread may call it at the same time.
class KeptSteps {
 public:
  KeptSteps(std::string folder, const CheckpointSection& section);

  /// A step with this loss would be one of those that stay for it, were it saved. `coming`: of the
  /// step that is being saved.
  bool is_among_best(int64_t step, double loss, const std::optional<SavedStep>& coming);
  /// The step is in the folder now, and has these names beside those of the newest and the best
  /// (checkpoint.names). Deletes those that no rule keeps any more; one that cannot be deleted, or
  /// named, is a warning.
  void published(int64_t step, std::optional<double> loss, const std::vector<std::string>& names);
  /// A step that is in the folder gets these names.
  void name(int64_t step, const std::vector<std::string>& names);

 private:
  std::vector<SavedStep> steps();
  void link(const std::string& name, int64_t step) const;

  const std::string folder_;
  const RetentionRule rule_;
  const bool names_;
  std::mutex mutex_;
  std::map<int64_t, std::optional<double>> losses_;  // of steps in the folder
};

}  // namespace trireme
