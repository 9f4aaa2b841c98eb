// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/distributed_sampler.h"

#include <torch/serialize/archive.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/philox.h"
#include "trireme/data/permutation.h"

namespace trireme {
namespace {

// Version 1 held epoch and index alone, and its index was what had been drawn.
constexpr int64_t kVersion = 2;

int64_t number(torch::serialize::InputArchive& archive, const char* key) {
  c10::IValue value;
  check<Corrupt>(archive.try_read(key, value) && value.isInt() && value.toInt() >= 0,
                 "DistributedSampler: the archive holds no place of a sampler: its {} is missing "
                 "or no count",
                 key);
  return value.toInt();
}

}  // namespace

struct DistributedSampler::State {
  size_t size, world, rank;
  Options options;
  size_t epoch = 0;
  size_t index = 0;          // drawn
  size_t taken = 0;          // of those, by the loop
  bool reported = false;     // since the last reset(), somebody said so
  bool epoch_is_set = true;  // the next reset() begins `epoch` itself, not the one after it
  bool loaded = false;       // the next reset() keeps the position
  bool named = false;        // … even at the end of its epoch, which set_epoch() has named

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
  auto& s = *state_;
  s.named = s.loaded && epoch == s.epoch;
  if (s.named) return;
  s.epoch = epoch;
  s.index = s.taken = 0;
  s.epoch_is_set = true;
  s.loaded = false;
}

size_t DistributedSampler::epoch() const { return state_->epoch; }
size_t DistributedSampler::num_samples() const { return state_->num_samples(); }
size_t DistributedSampler::index() const { return state_->index; }
size_t DistributedSampler::position() const { return state_->taken; }

void DistributedSampler::consumed(size_t samples) {
  auto& s = *state_;
  check<UsageError>(samples <= s.index - s.taken,
                    "DistributedSampler::consumed: the loop has taken {} samples of epoch {} and "
                    "says {} more, and {} are drawn: is this the sampler of the loop's loader, and "
                    "is each batch counted once?",
                    s.taken, s.epoch, samples, s.index);
  s.taken += samples;
  s.reported = true;
}

void DistributedSampler::reset(detail::SamplerSize new_size) {
  auto& s = *state_;
  if (new_size) {
    check<UsageError>(*new_size > 0, "DistributedSampler: the data set is empty");
    s.size = *new_size;
  }
  const bool keep = s.loaded && (s.named || s.index < s.num_samples());
  s.loaded = s.named = s.reported = false;
  if (keep) return;
  if (!s.epoch_is_set) ++s.epoch;
  s.epoch_is_set = false;
  s.index = s.taken = 0;
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

void DistributedSampler::check_known(const char* call) const {
  const auto& s = *state_;
  check<UsageError>(
      s.reported || s.index == s.taken,
      "DistributedSampler::{}: {} samples of epoch {} have been drawn, and it is not known how "
      "many of them the loop has taken, since a loader with workers draws ahead. Loop over "
      "counted(*loader, sampler), or call sampler.consumed(samples) for each batch",
      call, s.index - s.taken, s.epoch);
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  check_known("save");
  const auto& s = *state_;
  auto write = [&](const char* key, size_t value) {
    archive.write(key, c10::IValue(static_cast<int64_t>(value)));
  };
  archive.write("trireme_sampler", c10::IValue(kVersion));
  write("epoch", s.epoch);
  write("index", s.taken);
  write("size", s.size);
  write("world", s.world);
  archive.write("seed", c10::IValue(std::to_string(s.options.seed)));
  write("shuffle", s.options.shuffle);
  write("drop_last", s.options.drop_last);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  auto& s = *state_;
  c10::IValue version, seed;
  const bool first_version = !archive.try_read("trireme_sampler", version);
  check<UsageError>(first_version || (version.isInt() && version.toInt() <= kVersion),
                    "DistributedSampler: the archive has a version newer than {}, the last that "
                    "this program reads: use a newer program",
                    kVersion);
  const int64_t epoch = number(archive, "epoch");
  int64_t index = number(archive, "index");
  if (first_version) {
    log_warn(
        "DistributedSampler: the archive has version 1, which counted the samples drawn: if its "
        "loader had workers, its position is ahead of the training");
  } else {
    auto same = [&](const char* key, size_t mine) {
      const int64_t theirs = number(archive, key);
      check<UsageError>(theirs == static_cast<int64_t>(mine),
                        "DistributedSampler: the archive holds the place in another order: its {} "
                        "is {}, and this sampler's is {}",
                        key, theirs, mine);
    };
    same("size", s.size);
    same("shuffle", s.options.shuffle);
    same("drop_last", s.options.drop_last);
    check<UsageError>(archive.try_read("seed", seed) && seed.isString() &&
                          seed.toStringRef() == std::to_string(s.options.seed),
                      "DistributedSampler: the archive holds the place in another order: its seed "
                      "is not this sampler's, {}",
                      s.options.seed);
    return continue_from(epoch, index, number(archive, "world"));
  }
  continue_from(epoch, index, static_cast<int64_t>(s.world));
}

// Each of so many ranks had taken `index` samples: together the first ranks × index of the order.
void DistributedSampler::continue_from(int64_t epoch, int64_t index, int64_t ranks) {
  auto& s = *state_;
  const auto world = static_cast<int64_t>(s.world), size = static_cast<int64_t>(s.size);
  check<Corrupt>(epoch >= 0 && index >= 0 && ranks >= 1 && ranks <= INT32_MAX &&
                     index <= (size + ranks - 1) / ranks,
                 "DistributedSampler: what is loaded holds no place in an order of {} samples",
                 s.size);
  const bool over = index == (s.options.drop_last ? size / ranks : (size + ranks - 1) / ranks);
  check<UsageError>(over || index * ranks % world == 0,
                    "DistributedSampler: {} ranks have taken {} samples each of the epoch, which "
                    "{} ranks cannot continue from: use {} ranks, or save at the end of an epoch",
                    ranks, index, world, ranks);
  index = over ? static_cast<int64_t>(num_samples()) : index * ranks / world;
  check<Corrupt>(index <= static_cast<int64_t>(num_samples()),
                 "DistributedSampler: what is loaded holds no place of a sampler of {} samples a "
                 "rank",
                 num_samples());
  s.epoch = static_cast<size_t>(epoch);
  s.index = s.taken = static_cast<size_t>(index);
  s.epoch_is_set = s.reported = s.named = false;
  s.loaded = true;
}

void DistributedSampler::state(StateVisitor& visitor) {
  auto& s = *state_;
  if (visitor.saving()) check_known("state");
  visitor.constant("sampler.size", std::to_string(s.size));
  visitor.constant("sampler.seed", std::to_string(s.options.seed));
  visitor.constant("sampler.shuffle", s.options.shuffle ? "true" : "false");
  visitor.constant("sampler.drop_last", s.options.drop_last ? "true" : "false");
  auto epoch = static_cast<int64_t>(s.epoch), index = static_cast<int64_t>(s.taken),
       world = static_cast<int64_t>(s.world);
  visitor.value("sampler.epoch", epoch);
  visitor.value("sampler.index", index);
  visitor.value("sampler.world", world);
  if (visitor.loading()) continue_from(epoch, index, world);
}

}  // namespace trireme
