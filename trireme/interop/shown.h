// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme::interop {

/// A stranger's words in a message: printable, and no longer than 120 characters.
inline std::string shown(std::string_view text) {
  constexpr size_t kMost = 120;
  std::string out;
  for (unsigned char c : text.substr(0, kMost))
    out += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
  if (text.size() > kMost) out += "...";
  return out;
}

}  // namespace trireme::interop
