// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/gradients/gradients.h"

#include "trireme/base/check.h"
#include "trireme/grad/rounds/round_record.h"

namespace trireme {

Gradients::~Gradients() = default;

void Gradients::ride_on(RoundRecord& record) {
  record_ = &record;
  sum_ = record.add([this] { return loss_.sum; });
  weight_ = record.add([this] { return static_cast<double>(loss_.weight); });
  stop_ = record.add([this] { return static_cast<double>(stop_asked_); });
}

void Gradients::tell(const LossSum& loss, int stop_asked) {
  loss_ = loss;
  stop_asked_ = stop_asked;
}

Gradients::Reports Gradients::reports() const {
  return {record_->of(sum_), record_->of(weight_), record_->of(stop_)};
}

const NamedTensors& Gradients::owned() {
  ShardedParameters* shards = sharded();
  return shards ? shards->shards() : parameters_;
}

std::shared_ptr<const NormParts> Gradients::norm_parts() {
  ShardedParameters* shards = sharded();
  return shards ? shards->norm_parts() : nullptr;
}

void Gradients::publish() {
  if (ShardedParameters* shards = sharded()) shards->publish();
}

int64_t Gradients::bytes() {
  int64_t sum = 0;
  for (const auto& [name, p] : owned())
    if (p.grad().defined()) sum += static_cast<int64_t>(p.grad().nbytes());
  return sum;
}

void Gradients::reopen(int) {
  fail<UsageError>("these gradients are sent after each micro-batch and cannot be reopened");
}

void Gradients::clip_own(double, double) {
  fail<UsageError>("these gradients are sent during backward: a rank cannot clip its own");
}

const Reducer& Gradients::reducer() const {
  fail<UsageError>("gradients are sharded: there is no reducer of whole ones");
}

}  // namespace trireme
