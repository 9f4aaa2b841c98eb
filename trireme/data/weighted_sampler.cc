// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/weighted_sampler.h"

#include <torch/serialize/archive.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/philox.h"
#include "trireme/tensor/numbers_of.h"

namespace trireme {
namespace {

/// [0, 1) for one element of a stream of random numbers.
double random_of(uint64_t key, uint64_t element) {
  const PhiloxBlock block = philox_block(key, 0, element);
  return uniform01_double(block[0], block[1]);
}

DistributedSamplerOptions positions_of(const DistributedWeightedSamplerOptions& options) {
  return {.shuffle = false, .seed = options.seed, .drop_last = options.drop_last};
}

size_t draws_of(const std::vector<double>& weights, size_t num_samples) {
  check<UsageError>(!weights.empty(), "DistributedWeightedSampler: there are no weights");
  return num_samples > 0 ? num_samples : weights.size();
}

}  // namespace

struct DistributedWeightedSampler::Draws {
  std::vector<double> weights;  // with replacement: their running sums
  size_t count;                 // draws of an epoch
  Options options;
  size_t last = 0;              // the last sample of a weight above 0
  std::string digest{};         // of weights and replacement
  std::vector<size_t> order{};  // without replacement: the draws of order_epoch
  size_t order_epoch = 0;

  uint64_t key(size_t epoch) const {
    return stable_hash({stable_hash("weighted sampler"), options.seed, epoch});
  }

  void check_weights() {
    size_t above = 0;
    double sum = 0;
    uint64_t hash = options.replacement;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double w = weights[i];
      check<UsageError>(std::isfinite(w) && w >= 0,
                        "DistributedWeightedSampler: weight {} is {}: weights are finite and not "
                        "negative",
                        i, w);
      hash = stable_hash({hash, std::bit_cast<uint64_t>(w)});
      sum += w;
      if (w > 0) ++above, last = i;
    }
    check<UsageError>(above > 0, "DistributedWeightedSampler: all {} weights are 0",
                      weights.size());
    check<UsageError>(std::isfinite(sum),
                      "DistributedWeightedSampler: the sum of the weights is not finite: divide "
                      "them by their largest");
    check<UsageError>(options.replacement || count <= above,
                      "DistributedWeightedSampler: {} draws without replacement from {} samples "
                      "of a weight above 0: set num_samples, or replacement",
                      count, above);
    digest = std::to_string(hash);
    if (!options.replacement) return;
    sum = 0;
    for (double& w : weights) w = sum += w;
  }

  size_t with_replacement(size_t epoch, size_t position) const {
    const double at = random_of(key(epoch), position) * weights.back();
    const auto found = std::upper_bound(weights.begin(), weights.end(), at);
    return std::min(static_cast<size_t>(found - weights.begin()), last);
  }

  // Each sample arrives at an exponentially distributed time, at a rate that is its weight: the
  // first to arrive among those that are left has a probability proportional to its weight.
  void arrange(size_t epoch) {
    if (!order.empty() && order_epoch == epoch) return;
    std::vector<std::pair<double, size_t>> arrivals;
    const uint64_t stream = key(epoch);
    for (size_t i = 0; i < weights.size(); ++i)
      if (weights[i] > 0) arrivals.emplace_back(-std::log1p(-random_of(stream, i)) / weights[i], i);
    const auto end = arrivals.begin() + static_cast<std::ptrdiff_t>(count);
    std::partial_sort(arrivals.begin(), end, arrivals.end());
    order.clear();
    for (auto it = arrivals.begin(); it != end; ++it) order.push_back(it->second);
    order_epoch = epoch;
  }
};

DistributedWeightedSampler::DistributedWeightedSampler(std::vector<double> weights,
                                                       size_t num_replicas, size_t rank,
                                                       Options options)
    : DistributedSampler(draws_of(weights, options.num_samples), num_replicas, rank,
                         positions_of(options)) {
  const size_t count = draws_of(weights, options.num_samples);
  draws_ = std::make_shared<Draws>(Draws{std::move(weights), count, options});
  draws_->check_weights();
}

void DistributedWeightedSampler::reset(detail::SamplerSize new_size) {
  if (new_size)
    check<UsageError>(*new_size == draws_->weights.size(),
                      "DistributedWeightedSampler: {} weights for a data set of {} samples",
                      draws_->weights.size(), *new_size);
  DistributedSampler::reset();
}

detail::SamplerBatch DistributedWeightedSampler::next(size_t batch_size) {
  auto batch = DistributedSampler::next(batch_size);
  if (!batch) return batch;
  auto& d = *draws_;
  if (!d.options.replacement) d.arrange(epoch());
  for (size_t& i : *batch) i = d.options.replacement ? d.with_replacement(epoch(), i) : d.order[i];
  return batch;
}

void DistributedWeightedSampler::save(torch::serialize::OutputArchive& archive) const {
  DistributedSampler::save(archive);
  archive.write("weights", c10::IValue(draws_->digest));
}

void DistributedWeightedSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue digest;
  check<UsageError>(archive.try_read("weights", digest) && digest.isString() &&
                        digest.toStringRef() == draws_->digest,
                    "DistributedWeightedSampler: the archive holds the position of other draws: "
                    "the weights or replacement were others");
  DistributedSampler::load(archive);
}

void DistributedWeightedSampler::state(StateVisitor& visitor) {
  visitor.constant("sampler.weights", draws_->digest);
  DistributedSampler::state(visitor);
}

std::vector<double> balanced_weights(const at::Tensor& labels) {
  check<UsageError>(labels.defined() && labels.dim() == 1 && labels.scalar_type() == at::kLong,
                    "balanced_weights: labels are [samples] int64");
  const std::vector<int64_t> classes = numbers_of<int64_t>(labels);
  std::unordered_map<int64_t, double> counts;
  for (const int64_t c : classes) ++counts[c];
  std::vector<double> weights;
  weights.reserve(classes.size());
  for (const int64_t c : classes) weights.push_back(1 / counts[c]);
  return weights;
}

}  // namespace trireme
