// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/in_place/ends_group.h"

#include "trireme/base/error.h"

namespace trireme {

bool ends_group(const std::exception& error) {
  return dynamic_cast<const PeerLost*>(&error) || dynamic_cast<const Timeout*>(&error) ||
         dynamic_cast<const Aborted*>(&error) || dynamic_cast<const Mismatch*>(&error);
}

}  // namespace trireme
