// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "trireme/checkpoint/save/same_tensors.h"
#include "trireme/checkpoint/save/save_plan.h"
#include "trireme/checkpoint/steps/step_writer.h"
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

WriteOrders orders_for(const SavePlan& plan, size_t rank);

/// From the tensors of a walk, which are brought to CPU memory one by one, from a device through
/// pinned memory, one ahead: valid until the next call.
BytesOfWrite bytes_in(const Collector& state, const WriteOrders& orders);

/// Takes a rank's checksums into the index.
void add_checksums(SavePlan& plan, size_t rank, const std::vector<uint64_t>& checksums);

}  // namespace trireme
