// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace trireme::interop {

/// Whether these bytes are UTF-8 as RFC 3629 has it: no overlong forms, no surrogates.
inline bool valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) {
      return static_cast<unsigned char>(at < text.size() ? text[at] : 0);
    };
    const unsigned char first = byte(i);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const size_t more = first >= 0xC2 && first <= 0xDF   ? 1
                        : first >= 0xE0 && first <= 0xEF ? 2
                        : first >= 0xF0 && first <= 0xF4 ? 3
                                                         : 0;
    if (more == 0) return false;
    const unsigned char second = byte(i + 1);
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
      return false;
    for (size_t k = 1; k <= more; ++k)
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    i += 1 + more;
  }
  return true;
}

}  // namespace trireme::interop
