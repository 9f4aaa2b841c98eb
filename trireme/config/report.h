// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/config/config.h"

// What `trireme config` prints. The functions only make text.
namespace trireme {

/// An inspection with what its batches come to.
struct CheckReport {
  Inspection inspection;
  std::optional<Batches> batches;  // for the world asked about
  std::string batch_error;
  /// What else `trireme train` would refuse on so many ranks, a sentence each: the caller's to
  /// fill.
  std::vector<std::string> refused = {};
  bool ok() const { return inspection.ok() && batch_error.empty() && refused.empty(); }
  /// The first error; empty when ok.
  std::string first_error() const;
  int errors() const;
};

/// `world` 0: one rank, or as many as three given batch numbers imply.
TRIREME_API CheckReport check_config(const ConfigInputs& inputs, int world,
                                     std::shared_ptr<const KeyTable> table = nullptr);
/// Each key given: supported, accepted without effect (why), refused (why); then notes and batches.
TRIREME_API std::string check_text(const CheckReport& report);
TRIREME_API std::string check_json(const CheckReport& report);
/// Every key that runs, with its default, what it may be, and what it does: as a table of text, or
/// as the part of docs/configuration.md between its two marks.
TRIREME_API std::string keys_text(const KeyTable& table);
TRIREME_API std::string keys_markdown(const KeyTable& table);
/// Every key that applies: value and origin, defaults too.
TRIREME_API std::string show_text(const Config& config, const std::optional<Batches>& batches);

}  // namespace trireme
