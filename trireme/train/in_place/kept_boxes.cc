// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/in_place/kept_boxes.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

namespace trireme {

int64_t KeptBox::numel() const {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{1}, std::multiplies<>());
}

bool are_whole(const std::vector<std::vector<KeptBox>>& of_ranks, const WholeState& whole) {
  std::set<KeptBox> different;
  for (const auto& boxes : of_ranks) different.insert(boxes.begin(), boxes.end());
  WholeState there;
  for (const KeptBox& box : different) there[box.name] += box.numel();
  return !whole.empty() && std::all_of(whole.begin(), whole.end(), [&](const auto& tensor) {
    const auto found = there.find(tensor.first);
    return (found == there.end() ? 0 : found->second) == tensor.second;
  });
}

std::vector<BoxSent> boxes_to_send(const std::vector<std::vector<KeptBox>>& of_ranks) {
  struct Holders {
    int first = 0;
    size_t count = 0;
  };
  std::map<KeptBox, Holders> holders;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank)
    for (const KeptBox& box : of_ranks[rank]) {
      Holders& of_box = holders[box];
      if (of_box.count++ == 0) of_box.first = static_cast<int>(rank);
    }
  std::vector<BoxSent> sent;
  for (const auto& [box, of_box] : holders)
    sent.push_back({box, of_box.first, of_box.count == of_ranks.size()});
  return sent;
}

SharedBox shared_box(const std::vector<int64_t>& offsets_a, const std::vector<int64_t>& lengths_a,
                     const std::vector<int64_t>& offsets_b, const std::vector<int64_t>& lengths_b) {
  SharedBox shared{true, {}, {}};
  for (size_t d = 0; d < offsets_a.size(); ++d) {
    const int64_t begin = std::max(offsets_a[d], offsets_b[d]);
    const int64_t end = std::min(offsets_a[d] + lengths_a[d], offsets_b[d] + lengths_b[d]);
    if (begin >= end) return {};
    shared.offsets.push_back(begin);
    shared.lengths.push_back(end - begin);
  }
  return shared;
}

}  // namespace trireme
