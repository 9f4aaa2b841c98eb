// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/base/error.h"

namespace trireme::local {

/// This process may open no more files.
class NoDescriptors : public ResourceError {
  using ResourceError::ResourceError;
};

/// Throws ResourceError: the system refused `call` (errno); why, and what helps. "cannot create
/// memory that ranks share: memfd_create: Operation not permitted. A seccomp profile …".
[[noreturn]] void refused(const std::string& what, const char* call);

/// Of a descriptor that was sent and could not be taken.
std::string no_descriptors();

}  // namespace trireme::local
