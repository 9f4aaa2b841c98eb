// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"

// The texts that `trireme config` prints. These functions only build strings.
namespace trireme {

/// An inspection with the resulting batches.
struct CheckReport {
  Inspection inspection;
  std::optional<Batches> batches;  // for the world asked about
  std::string batch_error;
  /// What else `trireme train` would refuse on this many ranks, one sentence each; the caller fills
  /// it.
  std::vector<std::string> refused = {};
  bool ok() const { return inspection.ok() && batch_error.empty() && refused.empty(); }
  /// Returns the first error; empty if ok().
  std::string first_error() const;
  int errors() const;
};

/// Inspects the configuration for `world` ranks; 0 means one rank, or the number that the given
/// batch numbers imply.
TRIREME_API CheckReport check_config(const ConfigInputs& inputs, int world,
                                     std::shared_ptr<const KeyTable> table = nullptr);
/// Lists each given key as supported, accepted without effect (why) or refused (why), then notes
/// and batches.
TRIREME_API std::string check_text(const CheckReport& report);
TRIREME_API std::string check_json(const CheckReport& report);
/// Lists every supported key with its default, allowed values and effect: as plain text, or as the
/// part of docs/configuration.md between its two marks.
TRIREME_API std::string keys_text(const KeyTable& table);
TRIREME_API std::string keys_markdown(const KeyTable& table);
/// Lists every key that applies with value and origin, including defaults.
TRIREME_API std::string show_text(const Config& config, const std::optional<Batches>& batches);

}  // namespace trireme
