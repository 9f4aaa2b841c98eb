// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/comm/backend.h"

namespace trireme::detail {

/// "cpu:local,cuda:nccl": a backend for each device, and not the name of one.
bool is_by_device(const std::string& backend);

/// Makes one of the backends in it; `device` is "cpu", "cuda", ….
using MakeForDevice =
    std::function<std::shared_ptr<Backend>(const std::string& backend, const std::string& device)>;

/// A backend that gives each call to the one for its tensor's device. What has no tensor (barrier)
/// goes to the first. A reduction counts as supported where all of them have it. UsageError for a
/// text that is not DEVICE:BACKEND,…
std::shared_ptr<Backend> by_device_backend(const std::string& text, const MakeForDevice& make);

}  // namespace trireme::detail
