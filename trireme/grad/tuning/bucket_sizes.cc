// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/tuning/bucket_sizes.h"

#include <algorithm>

namespace trireme {

BucketSizes bucket_sizes_for(const Group& group, size_t bytes, size_t first_bytes) {
  BucketSizes sizes;
  if (group.backend() == "local") sizes = {size_t{1} << 20, size_t{4} << 20};
  if (bytes) sizes.bytes = bytes;
  sizes.first_bytes = first_bytes ? first_bytes : std::min(sizes.first_bytes, sizes.bytes);
  return sizes;
}

}  // namespace trireme
