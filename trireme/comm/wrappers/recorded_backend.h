// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/comm/backend.h"

namespace trireme::detail {

/// A flight recorder for a backend that has none of its own: the same calls, written down in
/// private memory; dumped where a call fails, on SIGUSR2 and on fatal signals. So are the groups
/// that are made of it.
TRIREME_API std::shared_ptr<Backend> recorded_backend(std::shared_ptr<Backend> inner,
                                                      const std::string& group, int world_rank);

}  // namespace trireme::detail
