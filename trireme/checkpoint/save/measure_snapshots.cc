// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save/measure_snapshots.h"

#include <array>
#include <utility>
#include <vector>

#include "trireme/checkpoint/save/snapshot.h"
#include "trireme/checkpoint/save/step_save_wire.h"
#include "trireme/comm/objects.h"
#include "trireme/tensor/file_view.h"

namespace trireme {
namespace {

using step_save::Holding;
using step_save::Orders;

// Rank 0 deals the writes as for a save.
std::vector<Orders> deal(const std::vector<Holding>& holdings) {
  std::vector<Orders> all(holdings.size());
  const RankFailure failure = failure_of([&] {
    std::vector<HeldState> held(holdings.size());
    for (size_t r = 0; r < holdings.size(); ++r) {
      raise(holdings[r].failure);
      holdings[r].put_into(held[r]);
    }
    const SavePlan plan = plan_save(held);
    for (size_t r = 0; r < all.size(); ++r) all[r].take(orders_for(plan, r));
  });
  for (Orders& orders : all) orders.failure = failure;
  return all;
}

// What lies in files is not copied into memory.
WriteOrders without_file_views(WriteOrders orders, const Collector& state) {
  std::erase_if(orders.writes, [&](const PlannedWrite& w) {
    const at::Tensor& t = state.tensors[w.tensor];
    return t.is_contiguous() && is_file_view(t);
  });
  return orders;
}

}  // namespace

int64_t measure_snapshots(const StateWalk& walk, Group group) {
  Collector state(group.rank());
  Holding holding;
  holding.failure = failure_of([&] {
    walk(state);
    for (const HeldTensor& t : state.held.tensors)
      holding.tensors.push_back(step_save::WireTensor::from(t));
    holding.take_values(state.held);
  });
  const std::vector<Holding> holdings = gather_object(group, holding, 0);
  const Orders mine =
      scatter_object(group, group.rank() == 0 ? deal(holdings) : std::vector<Orders>(), 0);
  raise(mine.failure);
  int64_t bytes = 0;
  const RankFailure failure = failure_of([&] {
    const WriteOrders orders = without_file_views(mine.orders(state), state);
    SnapshotLabel label(orders, "");
    label.set_note({});
    std::array<SnapshotMemory, 2> memory;
    Snapshot::take(state, orders, label, memory[0]);
    memory[1].reserve(label.layout().size);
    for (const SnapshotMemory& one : memory) bytes += static_cast<int64_t>(one.bytes());
  });
  for (const RankFailure& of_rank : all_gather_object(group, failure)) raise(of_rank);
  return bytes;
}

}  // namespace trireme
