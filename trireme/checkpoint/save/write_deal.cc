// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save/write_deal.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace trireme {
namespace {

// What each rank of a set takes of `bytes`, so that the lowest loads rise to one level.
std::vector<int64_t> fill_up(const std::vector<int64_t>& loads, int64_t bytes) {
  std::vector<size_t> order(loads.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return loads[a] < loads[b]; });
  // The first n of the order end on one level.
  size_t n = 0;
  int64_t below = 0;  // what those n have
  while (n < order.size() && loads[order[n]] * static_cast<int64_t>(n) - below <= bytes)
    below += loads[order[n++]];
  const auto count = static_cast<int64_t>(n);
  std::vector<int64_t> taken(loads.size(), 0);
  int64_t left = bytes;
  for (size_t i = 0; i < n; ++i) {
    const int64_t level = (below + bytes + count - 1) / count;
    taken[order[i]] = std::clamp<int64_t>(level - loads[order[i]], 0, left);
    left -= taken[order[i]];
  }
  return taken;
}

class Dealer {
 public:
  Dealer(const std::vector<SharedBytes>& items, size_t ranks, int64_t block)
      : items_(items), loads_(ranks, 0), block_(block) {}

  std::vector<WriteShare> deal() {
    std::map<std::vector<size_t>, std::vector<size_t>> sets;  // ranks → items
    for (size_t i = 0; i < items_.size(); ++i) sets[items_[i].ranks].push_back(i);
    std::vector<const std::vector<size_t>*> order;
    for (const auto& [ranks, list] : sets) order.push_back(&ranks);
    std::stable_sort(order.begin(), order.end(),
                     [](const auto* a, const auto* b) { return a->size() < b->size(); });
    for (const auto* ranks : order) among(*ranks, sets.at(*ranks));
    return std::move(shares_);
  }

 private:
  void among(const std::vector<size_t>& ranks, const std::vector<size_t>& list) {
    int64_t bytes = 0;
    for (size_t i : list) bytes += items_[i].bytes;
    std::vector<int64_t> loads;
    for (size_t r : ranks) loads.push_back(loads_[r]);
    const std::vector<int64_t> wanted = fill_up(loads, bytes);
    size_t holder = 0;
    int64_t taken = 0;  // by the holder, in this set
    for (size_t i : list)
      for (int64_t begin = 0; begin < items_[i].bytes;) {
        const int64_t room = wanted[holder] - taken;
        const bool last = holder + 1 == ranks.size();
        // To the nearest end of a block, so that each block is one rank's.
        int64_t end = items_[i].bytes;
        if (!last && end - begin > room) {
          end = std::min(end, (begin + room + block_ / 2) / block_ * block_);
          if (end <= begin) {
            ++holder, taken = 0;
            continue;
          }
        }
        shares_.push_back({i, holder, begin, end});
        loads_[ranks[holder]] += end - begin;
        taken += end - begin;
        begin = end;
      }
  }

  const std::vector<SharedBytes>& items_;
  std::vector<int64_t> loads_;
  const int64_t block_;
  std::vector<WriteShare> shares_;
};

}  // namespace

std::vector<WriteShare> deal_writes(const std::vector<SharedBytes>& items, size_t ranks,
                                    int64_t block) {
  return Dealer(items, ranks, block).deal();
}

}  // namespace trireme
