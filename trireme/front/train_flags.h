// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/front/train_front.h"

// The flags of a program that trains, beside those of the launcher.
namespace trireme {

struct TrainFlags {
  std::vector<std::string> files, sets;
  std::string run_dir, metrics;
  bool resume = false, overwrite = false, take_over = false, started_again = false, force = false,
       help = false;
  std::string resume_path;
  /// --resume auto: from the newest good step of the run folder, or anew where it has none.
  bool resume_auto = false;
};

/// Of the words that are not the launcher's. UsageError.
TrainFlags parse_train_flags(const TrainFront& front, const std::vector<std::string>& words);

/// What --help prints.
std::string train_help(const TrainFront& front);

}  // namespace trireme
