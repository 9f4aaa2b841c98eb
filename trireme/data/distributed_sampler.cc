// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/distributed_sampler.h"

#include <torch/serialize/archive.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/data/permutation.h"

namespace trireme {

struct DistributedSampler::State {
  size_t size, world, rank;
  Options options;
  size_t epoch = 0;
  size_t index = 0;
  bool epoch_is_set = true;  // the next reset() begins `epoch` itself, not the one after it
  bool loaded = false;       // the next reset() keeps the position

  size_t num_samples() const {
    return options.drop_last ? size / world : (size + world - 1) / world;
  }
};

DistributedSampler::DistributedSampler(size_t size, size_t num_replicas, size_t rank,
                                       Options options)
    : state_(std::make_shared<State>(State{size, num_replicas, rank, options})) {
  check<UsageError>(size > 0, "DistributedSampler: the data set is empty");
  check<UsageError>(rank < num_replicas, "DistributedSampler: no rank {} among {} replicas", rank,
                    num_replicas);
  check<UsageError>(
      state_->num_samples() > 0,
      "DistributedSampler: {} samples for {} replicas leave none for each with drop_last: "
      "use fewer ranks or leave drop_last off",
      size, num_replicas);
}

void DistributedSampler::set_epoch(size_t epoch) {
  state_->epoch = epoch;
  state_->index = 0;
  state_->epoch_is_set = true;
  state_->loaded = false;
}

size_t DistributedSampler::epoch() const { return state_->epoch; }
size_t DistributedSampler::num_samples() const { return state_->num_samples(); }
size_t DistributedSampler::index() const { return state_->index; }

void DistributedSampler::reset(detail::SamplerSize new_size) {
  auto& s = *state_;
  if (new_size) {
    check<UsageError>(*new_size > 0, "DistributedSampler: the data set is empty");
    s.size = *new_size;
  }
  const bool keep = s.loaded && s.index < s.num_samples();
  s.loaded = false;
  if (keep) return;
  if (!s.epoch_is_set) ++s.epoch;
  s.epoch_is_set = false;
  s.index = 0;
}

detail::SamplerBatch DistributedSampler::next(size_t batch_size) {
  auto& s = *state_;
  s.epoch_is_set = false;
  const size_t end = std::min(s.index + batch_size, s.num_samples());
  if (s.index >= end) return {};
  const Permutation order(static_cast<int64_t>(s.size),
                          stable_hash({s.options.seed, static_cast<uint64_t>(s.epoch)}));
  std::vector<size_t> batch;
  batch.reserve(end - s.index);
  for (; s.index < end; ++s.index) {
    const size_t position = (s.rank + s.index * s.world) % s.size;  // past the end: the start again
    batch.push_back(s.options.shuffle ? static_cast<size_t>(order(static_cast<int64_t>(position)))
                                      : position);
  }
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", c10::IValue(static_cast<int64_t>(state_->epoch)));
  archive.write("index", c10::IValue(static_cast<int64_t>(state_->index)));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue epoch, index;
  archive.read("epoch", epoch);
  archive.read("index", index);
  check<Corrupt>(
      epoch.isInt() && index.isInt() && epoch.toInt() >= 0 && index.toInt() >= 0 &&
          index.toInt() <= static_cast<int64_t>(num_samples()),
      "DistributedSampler: the archive holds no position of a sampler of {} samples a rank",
      num_samples());
  state_->epoch = static_cast<size_t>(epoch.toInt());
  state_->index = static_cast<size_t>(index.toInt());
  state_->epoch_is_set = false;
  state_->loaded = true;
}

}  // namespace trireme
