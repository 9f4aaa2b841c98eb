// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

// The numbers of the zip format (PKWARE's APPNOTE, sections 4.3 and 4.5). All little-endian.
namespace trireme::interop {

static_assert(std::endian::native == std::endian::little,
              "numbers are copied as they lie in a file");

inline constexpr uint32_t kLocalMark = 0x04034b50, kCentralMark = 0x02014b50, kEndMark = 0x06054b50,
                          kEnd64Mark = 0x06064b50, kLocatorMark = 0x07064b50;
inline constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                        kLocatorBytes = 20;
inline constexpr uint16_t kStored = 0, kDeflated = 8;
inline constexpr uint16_t kEncryptedFlags = 1 | 1 << 6 | 1 << 13, kUtf8Flag = 1 << 11;
inline constexpr uint16_t kZip64Id = 1;
/// "The value is in the zip64 field."
inline constexpr uint64_t kIn64 = 0xFFFFFFFF;

}  // namespace trireme::interop
