// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/measure_memory.h"

#include <algorithm>
#include <set>
#include <string>

#include "trireme/config/sections/checkpoint.h"
#include "trireme/config/sections/compression.h"
#include "trireme/config/sections/zero.h"
#include "trireme/monitor/memory.h"
#include "trireme/shard/sharded_parameters.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/live_bytes.h"
#include "trireme/tensor/state.h"
#include "trireme/train/run.h"
#include "trireme/train/saving.h"
#include "trireme/train/setup/run_device.h"
#include "trireme/train/step.h"

namespace trireme {
namespace {

/// Counts the bytes of tensors, each memory location once; those of another kind of device apart.
class Bytes final : public StateVisitor {
 public:
  explicit Bytes(at::Device device) : device_(device) {}
  void add(const at::Tensor& t) {
    if (t.defined() && t.nbytes() > 0 && t.data_ptr() && seen_.insert(t.data_ptr()).second)
      (t.device().type() == device_.type() ? sum_ : elsewhere_) += static_cast<int64_t>(t.nbytes());
  }
  void tensor(const Slice&, at::Tensor local) override { add(local); }
  void value(const std::string&, int64_t&) override {}
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}
  int64_t sum() const { return sum_; }
  int64_t elsewhere() const { return elsewhere_; }

 private:
  const at::Device device_;
  std::set<const void*> seen_;
  int64_t sum_ = 0, elsewhere_ = 0;
};

// Under ZeRO-3 the model's tensors have no bytes of their own; with shared weights ranks have one
// copy.
int64_t weights_of(Run& run, const Config& config) {
  Bytes bytes(run.device);
  for (const auto& [name, w] : run.weights) bytes.add(w);
  for (const auto& p : run.model->parameters()) bytes.add(p);
  if (run.collective_forward) run.gradients->sharded()->state(bytes);
  const bool shared = run.gradients->sharded() && !run.collective_forward &&
                      config.section<ZeroSection>().share_weights;
  return bytes.sum() / (shared ? run.mesh.size("dp_shard") : 1);
}

// Each group of a mesh has windows of its own.
int64_t shared_bytes(const DeviceMesh& mesh) {
  std::set<std::string> seen;
  int64_t bytes = 0;
  const auto add = [&](const Group& group) {
    if (seen.insert(group.name()).second) bytes += group.shared_bytes();
  };
  add(mesh.world());
  for (const MeshAxis& axis : mesh.shape().axes()) add(mesh.group(axis.name));
  for (const auto& axes : groups_of_several_axes()) add(mesh.group(axes));
  return bytes;
}

}  // namespace

MeasuredMemory measure_memory(const Config& config, Group group) {
  MeasuredMemory m;
  const int64_t before = proportional_memory();
  const at::Device device = run_device(config, group);
  const CurrentDevice current(device);
  LiveBytes live(device.type());
  Run run = build_run(config, group);
  start_data(run, config);
  train_step(run);  // changes the bucket layout
  train_step(run);
  // Steps without a codec's working memory.
  const CompressionOptions codec = config.section<CompressionSection>().codec;
  const int64_t more = codec.type == "none" ? 0 : std::min<int64_t>(codec.start_step, 4);
  for (int64_t step = 1; step < more; ++step) train_step(run);
  live.reset_peak();
  const int64_t held = live.now();
  train_step(run);
  m.activations = live.peak() - held;

  m.weights = weights_of(run, config);
  m.gradients = run.gradients->bytes();
  Bytes states(device);
  run.optimizer->state(states);
  m.optimizer = states.sum();
  m.host_optimizer = states.elsewhere();
  if (!device.is_cpu()) {
    const auto use = memory_use(device);
    m.device_total = use ? use->total : 0;
  }
  m.shared = shared_bytes(run.mesh);
  // The local engine has its own memory for the CPU's gradients and for what ranks share, which the
  // allocator does not know.
  int64_t in_windows = 0;
  if (group.backend() == "local" && device.is_cpu())
    in_windows = m.gradients + (run.gradients->sharded() ? m.weights : 0);
  const int64_t allocated = held - (m.weights + m.gradients + m.optimizer - in_windows);
  m.buffers = std::max<int64_t>(0, allocated);
  if (device.is_cpu()) m.buffers += std::max<int64_t>(0, m.shared - in_windows);
  group.barrier();  // all ranks see their peers' pages
  const int64_t after = proportional_memory();
  if (before >= 0 && after >= 0) m.resident = after - before;
  group.barrier();
  const auto checkpoint = config.section<CheckpointSection>();
  if (checkpoint.makes_snapshots()) m.snapshots = measure_run_snapshots(run);
  return m;
}

}  // namespace trireme
