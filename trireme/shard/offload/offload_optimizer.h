// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/base/export.h"
#include "trireme/optim/master_weights.h"
#include "trireme/optim/optimizer.h"
#include "trireme/shard/offload/offload_file.h"
#include "trireme/shard/parameter_home.h"

// An optimizer whose state lies in a file (ZeRO-Infinity's NVMe path): for states that do not fit
// into memory. The parameters are dealt into sub-groups, each with an inner optimizer of its own;
// the bytes of its state are in memory only while it steps.
//
//   auto make = [](NamedTensors p) { return make_adamw(std::move(p)); };
//   auto optimizer = offload_optimizer(parameters, make, {.file = {.folder = "/nvme"}});
//
// Under master weights, make = [](NamedTensors p) { return with_master_weights(p, …); }: the
// float32 masters then lie in the file, too.
namespace trireme {

struct OffloadOptions {
  OffloadFileOptions file = {};
  /// State that moves as one; a parameter with more is moved alone. DeepSpeed counts elements:
  /// sub_group_size.
  int64_t sub_group_bytes = int64_t{64} << 20;
  int buffer_count = 3;
  bool pipeline_read = true;   // the next sub-group is read while one steps (2 buffers or more)
  bool pipeline_write = true;  // the one before is written while one steps (2 buffers or more)
  /// Parameters that are not in memory at all times are brought with their sub-group's state
  /// (ShardedParameters::home()). What shares a home's unit and is cut by sub-groups moves with
  /// each of them.
  std::shared_ptr<ParameterHome> parameters = {};
};

/// What there is, in bytes of state. Of all in the file, a step has at most `buffer_bytes` in
/// memory.
struct OffloadUse {
  int sub_groups = 0;
  int64_t state_bytes = 0;     // in the file
  int64_t buffer_bytes = 0;    // buffers, allocated as long as the optimizer lives
  int64_t resident_bytes = 0;  // state that is in the buffers now: 0 between steps
  int64_t mapped_bytes = 0;    // state that is seen through the page cache (see `state`)
};

/// Weights and state are those of the inner optimizer over all parameters, bit for bit, for all of
/// optim/optimizer.h: parameters share nothing with each other there. Only the state that the inner
/// optimizers show in state() is offloaded; it must be in CPU memory.
///
/// state(visitor) brings in one sub-group after the other and writes back those that the visitor
/// changed; names and values are those of the inner optimizer over all parameters, so that a
/// checkpoint does not know whether the state was offloaded. A visitor that keeps a tensor beyond
/// its turn (a checkpoint's writer does) keeps a read-only view of the file: its pages count as
/// cache, which the kernel takes back when memory is short.
///
/// One thread at a time. No rank meets another here.
///
/// Construction: one sub-group of state and the buffers are in memory at most. `make` is called for
/// each parameter first, to see how much state it has. UsageError, ResourceError as in
/// offload_file.h. step: UsageError of a gradient (nothing has changed). An error of the disk
/// (ResourceError, Corrupt, Timeout) leaves a step half taken: the optimizer then refuses further
/// use; make a new one and load a checkpoint.
/// Source: Rajbhandari et al. 2021, ZeRO-Infinity; DeepSpeed's offload_optimizer.
class TRIREME_API OffloadedOptimizer final : public Optimizer {
 public:
  OffloadedOptimizer(NamedTensors parameters, const MakeOptimizer& make,
                     const OffloadOptions& options);
  ~OffloadedOptimizer() override;
  void step(double lr, double grad_scale = 1) override;
  void state(StateVisitor& visitor) override;

  OffloadUse use() const;
  /// Null where the inner optimizers have no state.
  const OffloadFile* file() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

TRIREME_API std::unique_ptr<OffloadedOptimizer> offload_optimizer(NamedTensors parameters,
                                                                  const MakeOptimizer& make,
                                                                  const OffloadOptions& options);

}  // namespace trireme
