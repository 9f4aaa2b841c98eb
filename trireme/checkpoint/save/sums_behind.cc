// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save/sums_behind.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/base/events/progress_marks.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/checkpoint/steps/checksum.h"

namespace trireme {

void SumsBehind::begin(const Snapshot& snapshot, const WriteOrders& orders) {
  end();
  std::vector<std::pair<const uint8_t*, size_t>> writes;
  for (size_t i = 0; i < orders.writes.size(); ++i)
    writes.emplace_back(static_cast<const uint8_t*>(snapshot[i]),
                        static_cast<size_t>(orders.writes[i].bytes));
  cancelled_ = false;
  thread_ = quiet_thread([this, snapshot, writes = std::move(writes)] {
    work_in_background();
    constexpr auto kBlock = static_cast<size_t>(CheckpointIndex::kBlock);
    std::vector<uint64_t> sums;
    for (const auto& [begin, bytes] : writes)
      for (size_t done = 0; done < bytes; done += kBlock) {
        if (cancelled_) return;
        sums.push_back(Checksum::number_of(begin + done, std::min(kBlock, bytes - done)));
      }
    snapshot.put_checksums(sums);
  });
}

void SumsBehind::end() {
  cancelled_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace trireme
