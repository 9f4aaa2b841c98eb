// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/advice.h"

namespace trireme::doctor {

std::vector<Interface> read_interfaces();
/// By which interface and with which address this host talks to `master` (host[:port]); nothing is
/// sent.
Route route_to(const std::string& master, const std::vector<Interface>& interfaces);

}  // namespace trireme::doctor
