// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/zip/crc32.h"

#include <array>
#include <cstring>

namespace trireme::interop {
namespace {

// tables[k][b]: what byte b does to the checksum when k more bytes follow it, so that eight bytes
// are taken at a time.
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? 0xEDB88320u ^ crc >> 1 : crc >> 1;
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (uint32_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 0xFF];
  return tables;
}

constexpr CrcTables kCrcTables = make_crc_tables();

}  // namespace

uint32_t crc32(std::span<const uint8_t> bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint32_t low = 0, high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + 4, 4);
    low ^= crc;
    crc = kCrcTables[7][low & 0xFF] ^ kCrcTables[6][low >> 8 & 0xFF] ^
          kCrcTables[5][low >> 16 & 0xFF] ^ kCrcTables[4][low >> 24] ^ kCrcTables[3][high & 0xFF] ^
          kCrcTables[2][high >> 8 & 0xFF] ^ kCrcTables[1][high >> 16 & 0xFF] ^
          kCrcTables[0][high >> 24];
  }
  for (; left > 0; ++at, --left) crc = crc >> 8 ^ kCrcTables[0][(crc ^ *at) & 0xFF];
  return ~crc;
}

}  // namespace trireme::interop
