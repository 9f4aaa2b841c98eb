// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/measure_memory.h"

#include <algorithm>
#include <set>

#include "trireme/monitor/memory.h"
#include "trireme/tensor/live_bytes.h"
#include "trireme/tensor/state.h"
#include "trireme/train/run.h"
#include "trireme/train/step.h"

namespace trireme {
namespace {

/// Bytes of tensors, each place in memory counted once.
class Bytes final : public StateVisitor {
 public:
  void add(const at::Tensor& t) {
    if (t.defined() && t.nbytes() > 0 && seen_.insert(t.data_ptr()).second)
      sum_ += static_cast<int64_t>(t.nbytes());
  }
  void tensor(const Slice&, at::Tensor local) override { add(local); }
  void value(const std::string&, int64_t&) override {}
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}
  int64_t sum() const { return sum_; }

 private:
  std::set<const void*> seen_;
  int64_t sum_ = 0;
};

int64_t weights_of(const Run& run) {
  Bytes bytes;
  for (const auto& [name, w] : run.weights) bytes.add(w);
  for (const auto& p : run.model->parameters()) bytes.add(p);
  return bytes.sum();
}

int64_t gradients_of(const Run& run) {
  Bytes bytes;
  for (const auto& [name, p] : run.gradients->parameters()) bytes.add(p.grad());
  return bytes.sum();
}

}  // namespace

MeasuredMemory measure_memory(const Config& config, Group group) {
  MeasuredMemory m;
  const int64_t before = proportional_memory();
  LiveBytes live;
  Run run = build_run(config, group);
  start_data(run, config);
  train_step(run);  // lays the buckets out anew
  train_step(run);
  live.reset_peak();
  const int64_t held = live.now();
  train_step(run);
  m.activations = live.peak() - held;

  m.weights = weights_of(run);
  m.gradients = gradients_of(run);
  Bytes states;
  run.optimizer->state(states);
  m.optimizer = states.sum();
  m.shared = run.group.shared_bytes();
  // The local engine gives gradients memory of its own, which the allocator knows nothing of.
  const int64_t allocated =
      held - m.weights - m.optimizer - (group.backend() == "local" ? 0 : m.gradients);
  m.buffers = std::max<int64_t>(0, allocated) + std::max<int64_t>(0, m.shared - m.gradients);
  group.barrier();  // peers' pages are there for all
  const int64_t after = proportional_memory();
  if (before >= 0 && after >= 0) m.resident = after - before;
  group.barrier();
  return m;
}

}  // namespace trireme
