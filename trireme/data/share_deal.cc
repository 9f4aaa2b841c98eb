// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/share_deal.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "trireme/base/check.h"

namespace trireme {
namespace {

int64_t sum(const Shares& shares) {
  return std::accumulate(shares.begin(), shares.end(), int64_t{0});
}

// Reads a number at `text` and moves behind it.
int64_t number(std::string_view& text) {
  int64_t n = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  check<Corrupt>(error == std::errc() && n >= 0, "a deal of samples cannot be read at '{}'", text);
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return n;
}

bool took(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

ShareDeal::ShareDeal(Shares shares) : changes_{{0, std::move(shares)}} {}

const ShareDeal::Change& ShareDeal::holding(int64_t step) const {
  auto it = std::find_if(changes_.rbegin(), changes_.rend(),
                         [&](const Change& c) { return c.from <= step; });
  check<UsageError>(it != changes_.rend(), "the deal of step {} has been forgotten", step);
  return *it;
}

ShareDeal::Range ShareDeal::range(int64_t step, int rank) const {
  std::lock_guard lock(mutex_);
  const Shares& shares = holding(step).shares;
  check<UsageError>(rank >= 0 && static_cast<size_t>(rank) < shares.size(),
                    "a deal to {} ranks has no rank {}", shares.size(), rank);
  return {std::accumulate(shares.begin(), shares.begin() + rank, int64_t{0}),
          shares[static_cast<size_t>(rank)]};
}

Shares ShareDeal::at(int64_t step) const {
  std::lock_guard lock(mutex_);
  return holding(step).shares;
}

Shares ShareDeal::newest() const {
  std::lock_guard lock(mutex_);
  return changes_.back().shares;
}

int64_t ShareDeal::since() const {
  std::lock_guard lock(mutex_);
  return changes_.back().from;
}

void ShareDeal::change(int64_t from_step, Shares shares) {
  std::lock_guard lock(mutex_);
  const Change& last = changes_.back();
  check<UsageError>(shares.size() == last.shares.size() && sum(shares) == sum(last.shares),
                    "a deal of {} samples to {} ranks cannot become one of {} to {}",
                    sum(last.shares), last.shares.size(), sum(shares), shares.size());
  check<UsageError>(from_step >= last.from, "a deal from step {} was added after one from step {}",
                    from_step, last.from);
  if (from_step == last.from)
    changes_.back().shares = std::move(shares);
  else
    changes_.push_back({from_step, std::move(shares)});
}

void ShareDeal::forget_before(int64_t step) {
  std::lock_guard lock(mutex_);
  while (changes_.size() > 1 && changes_[1].from <= step) changes_.erase(changes_.begin());
}

std::string ShareDeal::text() const {
  std::lock_guard lock(mutex_);
  std::string text;
  for (const Change& c : changes_) {
    text += fmt::format("{}{}:", text.empty() ? "" : " ", c.from);
    for (size_t r = 0; r < c.shares.size(); ++r)
      text += fmt::format("{}{}", r ? "," : "", c.shares[r]);
  }
  return text;
}

bool ShareDeal::restore(const std::string& text) {
  std::vector<Change> changes;
  for (std::string_view rest = text; !rest.empty() || changes.empty();) {
    Change c{number(rest), {}};
    check<Corrupt>(took(rest, ':') && (changes.empty() || changes.back().from < c.from),
                   "a deal of samples cannot be read: '{}'", text);
    do c.shares.push_back(number(rest));
    while (took(rest, ','));
    check<Corrupt>(changes.empty() || (changes[0].shares.size() == c.shares.size() &&
                                       sum(changes[0].shares) == sum(c.shares)),
                   "a deal of samples changes its ranks: '{}'", text);
    changes.push_back(std::move(c));
    check<Corrupt>(rest.empty() || (took(rest, ' ') && !rest.empty()),
                   "a deal of samples cannot be read: '{}'", text);
  }
  std::lock_guard lock(mutex_);
  if (changes[0].shares.size() != changes_[0].shares.size() ||
      sum(changes[0].shares) != sum(changes_[0].shares))
    return false;
  changes_ = std::move(changes);
  return true;
}

PrefetchingLoader::MakeBatch share_batches(std::shared_ptr<const DataSource> source,
                                           const GlobalBatch& plan, int rank,
                                           std::shared_ptr<const ShareDeal> deal, int64_t most) {
  check<UsageError>(source->fixed_rows() == 0,
                    "this data comes in batches of {} samples and cannot vary ({}): balance.mode "
                    "gives ranks different numbers of samples. Take balance.mode none",
                    source->fixed_rows(), source->describe());
  check<UsageError>(sum(deal->newest()) == plan.samples_per_step(),
                    "a deal of {} samples a step for a plan of {}", sum(deal->newest()),
                    plan.samples_per_step());
  return [source = std::move(source), plan, rank, deal = std::move(deal), most](int64_t step) {
    const ShareDeal::Range mine = deal->range(step, rank);
    Batch batch;
    int64_t at = mine.begin;
    for (const int64_t count : cut_share(mine.count, most)) {
      const Leaf part = plan.part(step, at, count);
      auto micro = source->get_in_epoch(part.ids, plan.epoch_of(step));
      micro.samples.resize(part.ids.size());
      std::iota(micro.samples.begin(), micro.samples.end(), part.first);
      batch.push_back(std::move(micro));
      at += count;
    }
    return batch;
  };
}

}  // namespace trireme
