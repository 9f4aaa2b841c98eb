// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "trireme/base/export.h"

namespace trireme::interop {

/// The CRC-32 of zip files (polynomial 0x04C11DB7, reflected).
TRIREME_API uint32_t crc32(std::span<const uint8_t> bytes);

}  // namespace trireme::interop
