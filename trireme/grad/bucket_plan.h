// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Assigns parameters to buckets. Pure: sizes in, lists out.
namespace trireme {

struct BucketSizes {
  size_t first_bytes = size_t{1} << 20;  // small, so that communication starts early
  size_t bytes = size_t{25} << 20;       // of the other buckets
};

/// The order in which parameters are put into buckets: that in which gradients arrived in the first
/// backward, or the reverse of their registration.
enum class BucketOrder : uint8_t { arrival, registration };

struct BucketItem {
  int64_t numel = 0;
  size_t item_bytes = 4;
  int kind = 0;  // number for a combination of dtype and device; a bucket holds one kind
};

/// Buckets in launch order; each lists indices into `items`. Parameters are taken in `order`; a
/// bucket is closed once it holds at least its bytes. Each parameter is in exactly one bucket, a
/// bucket holds one kind, and buckets are launched in the order in which their last parameter comes
/// in `order`.
inline std::vector<std::vector<int>> plan_buckets(const std::vector<BucketItem>& items,
                                                  const std::vector<int>& order,
                                                  const BucketSizes& sizes) {
  struct Open {
    int kind;
    size_t bytes = 0;
    std::vector<int> members;
  };
  std::vector<Open> open;
  std::vector<std::vector<int>> buckets;
  for (int index : order) {
    const BucketItem& item = items[static_cast<size_t>(index)];
    size_t at = 0;
    while (at < open.size() && open[at].kind != item.kind) ++at;
    if (at == open.size()) open.push_back({item.kind, 0, {}});
    Open& o = open[at];
    o.members.push_back(index);
    o.bytes += static_cast<size_t>(item.numel) * item.item_bytes;
    if (o.bytes >= (buckets.empty() ? sizes.first_bytes : sizes.bytes)) {
      buckets.push_back(std::move(o.members));
      open.erase(open.begin() + static_cast<long>(at));
    }
  }
  // What is left: in order of the last member, which is the order of `order` again.
  while (!open.empty()) {
    size_t best = 0;
    auto last_place = [&](const Open& o) {
      size_t place = 0;
      while (order[place] != o.members.back()) ++place;
      return place;
    };
    for (size_t i = 1; i < open.size(); ++i)
      if (last_place(open[i]) < last_place(open[best])) best = i;
    buckets.push_back(std::move(open[best].members));
    open.erase(open.begin() + static_cast<long>(best));
  }
  return buckets;
}

}  // namespace trireme
