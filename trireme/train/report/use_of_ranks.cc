// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/report/use_of_ranks.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "trireme/comm/objects.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

struct Use {
  double cpu_part = 0;
  int64_t device_peak = -1;  // bytes; -1: it computes on the CPU
  TRIREME_FIELDS(cpu_part, device_peak)
};

}  // namespace

UseOfRanks::UseOfRanks(Group group, at::Device device)
    : group_(std::move(group)),
      device_(device),
      lately_(at::get_num_threads()),
      in_all_(at::get_num_threads()) {}

UseOfRanks::Extremes UseOfRanks::lately() { return compare(lately_.take()); }
UseOfRanks::Extremes UseOfRanks::in_all() { return compare(in_all_.take()); }

UseOfRanks::Extremes UseOfRanks::compare(double cpu_part) {
  Extremes extremes;
  if (group_.size() == 1) return extremes;
  const auto memory = device_.is_cpu() ? std::nullopt : memory_use(device_);
  const auto all = gather_object(group_, Use{cpu_part, memory ? memory->peak_allocated : -1}, 0);
  if (all.empty()) return extremes;
  std::vector<RankShare> shares;
  for (size_t r = 0; r < all.size(); ++r) shares.push_back({static_cast<int>(r), all[r].cpu_part});
  extremes.sentence = busiest_and_idlest(shares);
  const auto rank_of = [&](auto found) { return static_cast<double>(found - all.begin()); };
  const auto [idlest, busiest] = std::minmax_element(
      all.begin(), all.end(), [](const Use& a, const Use& b) { return a.cpu_part < b.cpu_part; });
  extremes.fields = {{"cpu_busiest_rank", rank_of(busiest)},
                     {"cpu_busiest", busiest->cpu_part},
                     {"cpu_idlest_rank", rank_of(idlest)},
                     {"cpu_idlest", idlest->cpu_part}};
  const auto fullest = std::max_element(all.begin(), all.end(), [](const Use& a, const Use& b) {
    return a.device_peak < b.device_peak;
  });
  if (fullest->device_peak < 0) return extremes;
  extremes.fields.emplace_back("device_fullest_rank", rank_of(fullest));
  extremes.fields.emplace_back("device_fullest_bytes", static_cast<double>(fullest->device_peak));
  extremes.sentence += fmt::format("; device memory: rank {} had the most, {:.2f} GiB",
                                   static_cast<int>(rank_of(fullest)),
                                   static_cast<double>(fullest->device_peak) / (1 << 30));
  return extremes;
}

}  // namespace trireme
