// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "trireme/checkpoint/save/same_tensors.h"
#include "trireme/checkpoint/save/save_plan.h"
#include "trireme/tensor/state.h"

namespace trireme {

/// What this rank's walk shows: handles of tensors (no bytes), copies of values. UsageError for a
/// name twice, memory that is not as its slice says, a dtype that files do not hold.
class Collector : public StateVisitor {
 public:
  explicit Collector(int rank = 0) : rank_(rank) {}
  void tensor(const Slice& slice, at::Tensor local) override;
  void copy_of_rank_0(const std::string& name, at::Tensor whole) override {
    if (rank_ == 0) StateVisitor::copy_of_rank_0(name, std::move(whole));
  }
  void value(const std::string& name, int64_t& v) override { take(name, v); }
  void value(const std::string& name, double& v) override { take(name, v); }
  void value(const std::string& name, std::string& v) override { take(name, v); }

  HeldState held;                   // what is shown under several names is held under the first
  std::vector<at::Tensor> tensors;  // of held.tensors, in their order

 private:
  void take(const std::string& name, IndexValue v);
  const int rank_;
  std::map<std::string, bool> names_;  // of which a whole tensor or a value has been shown
  SameTensors same_;
};

/// What one rank does for a step.
struct WriteOrders {
  std::vector<PlannedFile> files;  // heads of those alone that this rank creates
  std::vector<PlannedWrite> writes;
};
WriteOrders orders_for(const SavePlan& plan, size_t rank);

/// The bytes of the i-th write of the orders; valid until the next call.
using BytesOfWrite = std::function<const void*(size_t i)>;
/// From the tensors of a walk, which are brought to CPU memory one by one.
BytesOfWrite bytes_in(const Collector& state, const WriteOrders& orders);

/// Writes and syncs files in `folder`, together with the other ranks that write them. The checksums
/// of the blocks that this rank wrote, in the order of its writes. What lies as memory_layout()
/// says goes to the disk past the page cache, if it can.
std::vector<uint64_t> write_step_files(const std::string& folder, const WriteOrders& orders,
                                       const BytesOfWrite& bytes_of);

/// Where a copy of the bytes of each write is best laid in memory that begins with a page: as the
/// file's pages lie. One more than there are writes: the last is the size of it all.
std::vector<size_t> memory_layout(const WriteOrders& orders);

/// Takes a rank's checksums into the index.
void add_checksums(SavePlan& plan, size_t rank, const std::vector<uint64_t>& checksums);

/// Writes and syncs the index, and the folder.
void write_index(const std::string& folder, const CheckpointIndex& index);

}  // namespace trireme
