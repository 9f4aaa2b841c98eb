// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/backend.h"

namespace trireme::detail {

/// Adds a flight recorder to a backend without one, and to the groups made of it: calls are
/// recorded in private memory and dumped if a call fails, on SIGUSR2 and on fatal signals.
TRIREME_API std::shared_ptr<Backend> recorded_backend(std::shared_ptr<Backend> inner,
                                                      const std::string& group, int world_rank);

}  // namespace trireme::detail
