// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/optim/master_weights.h"
#include "trireme/optim/optimizer.h"
#include "trireme/shard/offload/offload_file.h"
#include "trireme/shard/parameter_pager.h"

// An optimizer whose state is kept in a file (ZeRO-Infinity's NVMe path), for states that do not
// fit into memory. The parameters are divided into sub-groups, each with an inner optimizer of its
// own, whose state is in memory only while it steps.
//
//   auto make = [](NamedTensors p) { return make_adamw(std::move(p)); };
//   auto optimizer = offload_optimizer(parameters, make, {.file = {.folder = "/nvme"}});
//
// With make = [](NamedTensors p) { return with_master_weights(p, …); }, the float32 master weights
// are in the file, too.
namespace trireme {

struct OffloadOptions {
  OffloadFileOptions file = {};
  /// State that is moved together; a parameter with more is moved by itself. (DeepSpeed's
  /// sub_group_size counts elements.)
  int64_t sub_group_bytes = int64_t{64} << 20;
  int buffer_count = 3;
  bool pipeline_read = true;   // the next sub-group is read while one steps (2 buffers or more)
  bool pipeline_write = true;  // the one before is written while one steps (2 buffers or more)
  /// Where to get parameters that are not always in memory, from ShardedParameters::pager(): they
  /// are read together with their sub-group's state. A unit of the pager that is divided between
  /// sub-groups is read with each of them.
  std::shared_ptr<ParameterPager> parameters = {};
};

/// Bytes of state. Of the state in the file, a step has at most `buffer_bytes` in memory.
struct OffloadUsage {
  int sub_groups = 0;
  int64_t state_bytes = 0;     // in the file
  int64_t buffer_bytes = 0;    // buffers, allocated for the life of the optimizer
  int64_t resident_bytes = 0;  // state that is in the buffers now: 0 between steps
  int64_t mapped_bytes = 0;    // state mapped through the page cache (see `state`)
};

/// Weights and state equal those of one inner optimizer over all parameters, bit for bit, for every
/// optimizer in optim/optimizer.h, because parameters are updated independently and a sub-group
/// never splits one. Only the state that the inner optimizers visit in state() is offloaded; it
/// must be in CPU memory.
///
/// state(visitor) reads one sub-group after another and writes back those that the visitor changed;
/// names and values are those of one inner optimizer over all parameters, so checkpoints do not
/// depend on whether the state was offloaded. If a visitor keeps a tensor after its call (as the
/// checkpoint writer does), it keeps a read-only view of the file: its pages count as cache, which
/// the kernel reclaims when memory is short.
///
/// One thread at a time. No communication between ranks.
///
/// Construction has at most one sub-group of state and the buffers in memory. It first calls `make`
/// for each parameter, to find the size of its state. UsageError and ResourceError as in
/// offload_file.h. step(): UsageError for a gradient (nothing has changed). A disk error
/// (ResourceError, Corrupt, Timeout) leaves a step half done: the optimizer then refuses further
/// use; make a new one and load a checkpoint. Source: Rajbhandari et al. 2021, ZeRO-Infinity;
/// DeepSpeed's offload_optimizer.
class TRIREME_API OffloadedOptimizer final : public Optimizer {
 public:
  OffloadedOptimizer(NamedTensors parameters, const MakeOptimizer& make,
                     const OffloadOptions& options);
  ~OffloadedOptimizer() override;
  void step(double lr, double grad_scale = 1) override;
  void state(StateVisitor& visitor) override;

  OffloadUsage usage() const;
  /// Null if the inner optimizers have no state.
  const OffloadFile* file() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

TRIREME_API std::unique_ptr<OffloadedOptimizer> offload_optimizer(NamedTensors parameters,
                                                                  const MakeOptimizer& make,
                                                                  const OffloadOptions& options);

}  // namespace trireme
