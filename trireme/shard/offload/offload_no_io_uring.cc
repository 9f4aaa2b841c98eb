// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/offload/offload_io.h"

namespace trireme::detail {

std::unique_ptr<OffloadIo> make_io_uring(int, int, std::string* why_not) {
  *why_not = "this build has no liburing (Debian: liburing-dev)";
  return nullptr;
}

}  // namespace trireme::detail
