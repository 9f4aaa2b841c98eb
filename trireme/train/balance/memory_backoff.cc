// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/balance/memory_backoff.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/check.h"
#include "trireme/train/run.h"

namespace trireme {
namespace {

int64_t rows(const MicroBatch& micro) { return static_cast<int64_t>(micro.samples.size()); }

int64_t largest(const Batch& batch) {
  int64_t most = 0;
  for (const MicroBatch& m : batch) most = std::max(most, rows(m));
  return most;
}

std::string joined(const std::vector<int64_t>& list) {
  std::string text;
  for (const int64_t n : list) text += fmt::format("{}{}", text.empty() ? "" : ",", n);
  return text;
}

/// Those of the ranks that have one, for people: "rank 1: 2 samples, rank 3: 4 samples".
std::string limits_text(const std::vector<int64_t>& limits) {
  constexpr int kShown = 8;
  std::string text;
  int found = 0;
  for (size_t r = 0; r < limits.size(); ++r) {
    if (limits[r] == 0 || ++found > kShown) continue;
    text += fmt::format("{}rank {}: {} {}", text.empty() ? "" : ", ", r, limits[r],
                        limits[r] == 1 ? "sample" : "samples");
  }
  return found > kShown ? fmt::format("{} and {} more", text, found - kShown) : text;
}

}  // namespace

MemoryBackoff::MemoryBackoff(int rank, int ranks, RoundRecord& record)
    : rank_(rank),
      record_(record),
      limit_fact_(record.add([this] { return static_cast<double>(limit_); })),
      failed_fact_(record.add([this] { return static_cast<double>(failed_); })),
      limits_(static_cast<size_t>(ranks), 0) {}

Batch MemoryBackoff::cut(const Batch& batch) const {
  if (limit_ == 0) return batch;
  Batch parts;
  for (const MicroBatch& micro : batch)
    for (MicroBatch& part : cut_micro_batch(micro, limit_)) parts.push_back(std::move(part));
  return parts;
}

int MemoryBackoff::contributions(const Batch& batch) const {
  return largest(batch) <= proven_ ? static_cast<int>(batch.size()) : Gradients::kAsManyAsCome;
}

void MemoryBackoff::run(Run& run, const Batch& batch, const Compute& compute) {
  failed_ = 0;
  // Memory fragmented by the last step may not fit what fitted before.
  const auto give_back = [&] {
    if (give_back_) give_back_();
    release_cached_memory(run.device);
  };
  if (limit_ > 0) give_back();
  Batch parts = batch;
  for (;;) {
    size_t at = 0;
    try {
      compute(parts, at);
      proven_ = std::max(proven_, largest(parts));
      return;
    } catch (const std::exception& e) {
      if (!is_out_of_memory(e)) throw;
      const int64_t size = rows(parts.at(at));
      check<ResourceError>(run.gradients->can_reopen(),
                           "rank {} ran out of memory at {} samples in step {}, a size that had "
                           "fitted before, after some of its gradients had been sent. Lower "
                           "balance.max_samples for it and resume from the last checkpoint: {}",
                           rank_, size, run.step + 1, brief(e));
      check<ResourceError>(size > 1,
                           "rank {} ran out of memory at one sample in step {}: give it more "
                           "memory, or make the model smaller: {}",
                           rank_, run.step + 1, brief(e));
      failed_ = size;
      limit_ = size / 2;
      proven_ = 0;  // what fitted with more memory proves nothing now
    }
    for (auto& p : run.model->parameters()) p.mutable_grad() = at::Tensor();
    give_back();
    for (const auto& feature : run.features) feature->begin_again();
    parts = cut(batch);
    run.gradients->reopen(contributions(parts));
  }
}

void MemoryBackoff::closed(int64_t) {
  const auto limits = record_.of(limit_fact_), failed = record_.of(failed_fact_);
  for (size_t r = 0; r < limits_.size(); ++r) {
    limits_[r] = static_cast<int64_t>(limits[r]);
    if (failed[r] > 0)
      news_ +=
          fmt::format("{}rank {} ran out of memory at {} samples: micro-batches of {} from here on",
                      news_.empty() ? "" : "\n", r, static_cast<int64_t>(failed[r]), limits_[r]);
  }
}

std::string MemoryBackoff::news() { return std::exchange(news_, {}); }

void MemoryBackoff::state(StateVisitor& v) {
  std::string text = joined(limits_);
  const std::string before = text;
  v.value("balance.limits", text);
  if (text == before) return;
  std::vector<int64_t> read;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    int64_t n = -1;
    const auto [stop, error] = std::from_chars(at, end, n);
    check<Corrupt>(error == std::errc() && n >= 0 && (stop == end || *stop == ','),
                   "balance: the saved memory limits cannot be read: '{}'", text);
    read.push_back(n);
    at = stop == end ? end : stop + 1;
  }
  if (read.size() != limits_.size()) {
    // Which of these ranks has which memory is unknown: limits begin anew, as shares do.
    if (const std::string lost = limits_text(read); !lost.empty())
      news_ = fmt::format(
          "balance: the checkpoint is of {} ranks: what fitted their memory ({}) is left out, and "
          "is found out again",
          read.size(), lost);
    return;
  }
  limits_ = std::move(read);
  limit_ = limits_[static_cast<size_t>(rank_)];
}

}  // namespace trireme
