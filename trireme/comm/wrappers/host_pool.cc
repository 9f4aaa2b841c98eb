// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/wrappers/host_pool.h"

#include <algorithm>
#include <utility>

namespace trireme::detail {
namespace {

constexpr int64_t kPage = 4096;

// Calls of about one size share their blocks.
int64_t rounded(int64_t bytes) {
  return bytes <= kPage ? kPage : (bytes + kPage * 16 - 1) / (kPage * 16) * (kPage * 16);
}

}  // namespace

at::Tensor HostPool::take(const at::Tensor& like) {
  const auto bytes = static_cast<int64_t>(like.nbytes());
  const at::DeviceType partner = like.device().type();
  const int64_t room = rounded(bytes);
  auto best = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it)
    if (it->partner == partner && it->bytes.numel() >= room &&
        it->bytes.numel() <= room + room / 4 && it->free.reached() &&
        (best == idle_.end() || it->bytes.numel() < best->bytes.numel()))
      best = it;
  at::Tensor block;
  if (best != idle_.end()) {
    block = std::move(best->bytes);
    idle_bytes_ -= block.numel();
    idle_.erase(best);
  } else {
    block = host_buffer({room}, at::kByte, like.device());
  }
  taken_.push_back({block, partner});
  return block.narrow(0, 0, bytes).view(like.scalar_type());
}

void HostPool::give(const at::Tensor& t, DeviceEvent free) {
  const auto it = std::find_if(taken_.begin(), taken_.end(),
                               [&](const Taken& taken) { return taken.bytes.is_alias_of(t); });
  if (it == taken_.end()) return;
  Taken back = std::move(*it);
  taken_.erase(it);
  // Without a place among the idle it is freed, by an allocator that knows of copies under way.
  if (idle_bytes_ + back.bytes.numel() > kMostIdle) return;
  idle_bytes_ += back.bytes.numel();
  idle_.push_back({std::move(back.bytes), back.partner, std::move(free)});
}

}  // namespace trireme::detail
