// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/error.h"

namespace trireme::local {

/// This process may open no more files.
class NoDescriptors : public ResourceError {
  using ResourceError::ResourceError;
};

/// Throws ResourceError because the system refused `call` (errno), with the reason and what helps:
/// "cannot create shared memory: memfd_create: Operation not permitted. A seccomp profile
/// …".
[[noreturn]] void refused(const std::string& what, const char* call);

/// Returns the text for a descriptor that was sent but could not be received.
std::string no_descriptors();

}  // namespace trireme::local
