// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/export.h"

namespace trireme::net {

/// Text that a stranger sent, fit to be printed: at most 400 bytes, each of them plain ASCII.
TRIREME_API std::string printable(std::string_view text);

}  // namespace trireme::net
