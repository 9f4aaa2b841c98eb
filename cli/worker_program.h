// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Where the half of Trireme that links torch is, for the thin verbs that start it.
namespace trireme {

/// libexec/trireme/trireme-worker beside bin/, in the build tree and installed. ResourceError where
/// it is missing.
std::string worker_program();
/// The same, "" where it is missing.
std::string find_worker_program();

}  // namespace trireme
