// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/comm/backend.h"

namespace trireme::detail {

/// Whether the text, such as "cpu:local,cuda:nccl", names a backend per device instead of one
/// backend.
bool is_by_device(const std::string& backend);

/// Makes one of the backends; `device` is "cpu", "cuda" and so on.
using MakeForDevice =
    std::function<std::shared_ptr<Backend>(const std::string& backend, const std::string& device)>;

/// A backend that passes each call to the backend for its tensor's device; calls without a tensor
/// (barrier) go to the first. A reduction counts as supported if all of them support it. Throws
/// UsageError if the text is not DEVICE:BACKEND,…
std::shared_ptr<Backend> by_device_backend(const std::string& text, const MakeForDevice& make);

}  // namespace trireme::detail
