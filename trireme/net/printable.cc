// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/printable.h"

namespace trireme::net {

std::string printable(std::string_view text) {
  std::string out(text.substr(0, 400));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
  return out;
}

}  // namespace trireme::net
