// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/backend.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// A backend that uses local inside each host and another backend across hosts.
std::shared_ptr<Backend> hybrid_backend(const BackendSpec& spec);

}  // namespace trireme::detail
