// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/memory.h"

#include <algorithm>
#include <numeric>

#include "trireme/base/check.h"
#include "trireme/planner/element_bytes.h"

namespace trireme {
namespace {

constexpr int64_t kLine = 64;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

int64_t largest(const std::vector<int64_t>& numbers, size_t from) {
  return numbers.size() > from
             ? *std::max_element(numbers.begin() + static_cast<long>(from), numbers.end())
             : 0;
}

struct Sums {
  int64_t parameters = 0, largest = 0, lines = 0, states = 0, small = 0;
};

Sums sums_of(const MemoryQuestion& q) {
  Sums s;
  for (const auto& p : q.parameters) {
    const int64_t n = p.numel();
    s.parameters += n;
    s.largest = std::max(s.largest, n);
    s.lines += round_up(n, kLine / q.gradient_bytes);  // each gradient begins on a cache line
    s.states += state_numbers(q.optimizer, p);
    if (n < q.persistence_threshold) s.small += n;
  }
  return s;
}

/// A gradient on its way from backward to its place, as far as it is not hidden by what activations
/// need at their peak.
int64_t in_flight(const MemoryQuestion& q, const Sums& s) {
  return std::max<int64_t>(0,
                           q.activation_kept + s.largest * q.gradient_bytes - q.activation_bytes);
}

/// Of a bucket: at least its elements, at most all there are.
int64_t bucket_of(const MemoryQuestion& q, const Sums& s) {
  return std::min(s.parameters, std::max(q.bucket_elements, s.largest));
}

RankMemory whole(const MemoryQuestion& q, const Sums& s) {
  RankMemory m;
  m.weights = s.parameters * (q.weight_bytes + q.compute_bytes);
  m.gradients = s.lines * q.gradient_bytes;
  m.optimizer = s.states * kFloatBytes + s.parameters * q.master_bytes;
  m.buffers = q.group_bytes + in_flight(q, s);
  if (q.wire_bytes != q.gradient_bytes) m.buffers += bucket_of(q, s) * q.wire_bytes;
  return m;
}

RankMemory shared_out(const MemoryQuestion& q, const Sums& s) {
  const std::vector<int64_t> units = padded_units(q.parameters, q.dp_shard);
  const int64_t flat = std::accumulate(units.begin(), units.end(), int64_t{0});
  const int64_t shard = flat / q.dp_shard;
  // Every optimizer that can be shared out keeps the same number of states for each element.
  const int64_t states = s.parameters > 0 ? s.states / s.parameters : 0;
  const int64_t state_bytes = states * kFloatBytes + q.master_bytes;
  const int64_t bucket = bucket_of(q, s);

  RankMemory m;
  m.buffers = q.group_bytes + in_flight(q, s);
  m.optimizer = q.states_on_disk ? 0 : shard * state_bytes;
  if (q.states_on_disk) m.buffers += std::min(q.state_buffer_elements, shard) * state_bytes;
  m.gradients = (q.stage >= 2 ? shard : flat) * q.gradient_bytes;
  if (q.stage < 3) {
    m.weights = q.share_weights ? shard * q.weight_bytes : flat * q.weight_bytes;
    m.weights += flat * q.compute_bytes;
    // One bucket fills while another is on its way.
    if (q.stage == 2) m.buffers += std::min(2 * bucket, s.parameters) * q.gradient_bytes;
    if (q.wire_bytes != q.gradient_bytes) m.buffers += bucket * q.wire_bytes;
    return m;
  }
  // Small units stay whole from step to step, but not where all are dropped at a step's end.
  const int64_t stays = q.whole_for_step ? 0 : s.small;
  m.weights = (q.parameters_on_disk ? 0 : shard * q.weight_bytes) + stays * q.weight_bytes;
  if (q.parameters_on_disk)
    m.buffers += std::min(q.parameter_buffer_elements, shard) * q.weight_bytes;
  // What is outside of blocks is whole from the first layer to the last; one unit's gradients are.
  const int64_t widest = largest(units, 1);
  const int64_t gradient_bytes = std::max(q.gradient_bytes, q.wire_bytes);
  if (q.whole_for_step) {
    // The outside's gradients are complete last, while two blocks' are on their way.
    const auto blocks = std::min<int64_t>(2, static_cast<int64_t>(units.size()) - 1);
    const auto all = static_cast<int64_t>(units.size()) - 1;
    const int64_t whole =
        q.whole_blocks > 0 && q.whole_blocks < all ? units[0] + widest * q.whole_blocks : flat;
    m.buffers += whole * q.weight_bytes + (units[0] + blocks * widest) * gradient_bytes;
    return m;
  }
  m.buffers += (units[0] + widest * units_in_flight(units, q.prefetch_elements, q.live_elements)) *
               q.weight_bytes;
  m.buffers += std::max(units[0], widest) * gradient_bytes;
  return m;
}

}  // namespace

int64_t state_numbers(const OptimizerShape& optimizer, const ParameterShape& p) {
  const std::string& type = optimizer.type;
  const int64_t n = p.numel();
  if (type == "Adam" || type == "AdamW" || type == "Lamb") return n * (2 + optimizer.amsgrad);
  if (type == "AdaMod") return n * 3;
  if (type == "Lion" || type == "Adagrad") return n;
  if (type == "SGD" || type == "Lars") return optimizer.momentum ? n : 0;
  if (type == "RMSprop") return n * (1 + optimizer.momentum + optimizer.centered);
  if (type == "Adafactor") {  // of a matrix, means of rows and of columns; a vector is one row
    const int64_t rows = p.shape.empty() || n == 0 || n / p.shape[0] <= 1 ? 1 : p.shape[0];
    return n / rows + (rows > 1 ? rows : 0);
  }
  fail<UsageError>("the planner knows no optimizer '{}'", type);
}

std::vector<int64_t> padded_units(const std::vector<ParameterShape>& parameters, int64_t n) {
  std::vector<int64_t> units(1);
  for (const auto& p : parameters) {
    const auto unit = static_cast<size_t>(p.unit);
    if (units.size() <= unit) units.resize(unit + 1);
    units[unit] += round_up(p.numel(), kShardAlign);
  }
  for (auto& unit : units) unit = round_up(unit, n * kShardAlign);
  return units;
}

int64_t units_in_flight(const std::vector<int64_t>& units, int64_t prefetch_elements,
                        int64_t live_elements) {
  const int64_t blocks = static_cast<int64_t>(units.size()) - 1, widest = largest(units, 1);
  if (blocks < 1 || widest == 0) return 0;
  // A unit is gathered in one piece, so any prefetch is of one at least.
  const int64_t ahead =
      prefetch_elements > 0 ? std::max<int64_t>(1, prefetch_elements / widest) : 0;
  const int64_t live = std::max<int64_t>(1, (live_elements - units[0]) / widest);
  return std::min({1 + ahead, live, blocks});
}

RankMemory rank_memory(const MemoryQuestion& q) {
  check<UsageError>(q.stage >= 0 && q.stage <= 3, "there is no stage {} of ZeRO: 0 to 3 are",
                    q.stage);
  check<UsageError>(q.dp_shard >= 1, "states are shared out over {} ranks: at least 1", q.dp_shard);
  check<UsageError>(q.stage == 0 || q.optimizer.type != "Adafactor",
                    "Adafactor's state is factored over whole matrices and cannot be shared out");
  const Sums s = sums_of(q);
  RankMemory m = q.stage == 0 ? whole(q, s) : shared_out(q, s);
  m.activations = q.activation_bytes;
  m.buffers += q.exchange_bytes;
  m.snapshots = q.snapshot_bytes;
  return m;
}

}  // namespace trireme
