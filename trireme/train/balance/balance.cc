// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/balance/balance.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "trireme/base/check.h"
#include "trireme/config/sections/balance.h"

namespace trireme {
namespace {

constexpr size_t kShown = 8;  // ranks whose shares are all written out

double median(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

}  // namespace

std::string shares_text(const Shares& shares) {
  const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
  if (shares.size() > kShown) return fmt::format("{} to {}", *least, *most);
  std::string text;
  for (const int64_t n : shares) text += fmt::format("{}{}", text.empty() ? "" : "/", n);
  return text;
}

Balance::Balance(const BalanceOptions& options, int ranks, RoundRecord& record, OwnTime& time)
    : options_(options),
      ranks_(static_cast<size_t>(ranks)),
      record_(record),
      time_(record.add([&time] { return time.take(); })),
      deal_(std::make_shared<ShareDeal>(equal_shares(options.samples, ranks, options.least))) {}

void Balance::closed(int64_t step) {
  deal_->forget_before(step);
  std::vector<double> seconds = record_.of(time_);
  // Steps before a change takes effect still use the old shares.
  if (step < deal_->since()) return;
  const Shares shares = deal_->at(step);
  for (size_t r = 0; r < ranks_; ++r)
    // If the clock saw no time, assume the fastest rank that can be reported.
    seconds[r] = std::max(seconds[r], 1e-9) / static_cast<double>(shares[r]);
  window_.push_back(std::move(seconds));
  if (window_.size() < static_cast<size_t>(options_.every)) return;
  std::vector<double> typical;
  for (size_t r = 0; r < ranks_; ++r) {
    std::vector<double> one;
    for (const auto& of_step : window_) one.push_back(of_step[r]);
    typical.push_back(median(std::move(one)));
  }
  window_.clear();
  decide(step, typical);
}

void Balance::decide(int64_t step, const std::vector<double>& seconds) {
  const Shares now = deal_->newest();
  const Shares next = next_shares(now, {seconds, options_.samples, options_.least, options_.most},
                                  options_.hysteresis);
  if (next == now) return;
  const int64_t from = ShareDeal::first_free_step(step, options_.loader_depth);
  deal_->change(from, next);
  const auto slow = std::max_element(seconds.begin(), seconds.end());
  const double fastest = *std::min_element(seconds.begin(), seconds.end());
  const std::string times =
      fmt::format("rank {} needs {:.1f}x the time of the fastest for a sample",
                  slow - seconds.begin(), *slow / fastest);
  news_ +=
      fmt::format("{}balance: {} samples from step {} on (were {}): {}", news_.empty() ? "" : "\n",
                  shares_text(next), from + 1, shares_text(now), times);
}

std::string Balance::news() { return std::exchange(news_, {}); }

// Hexadecimal preserves all bits.
std::string Balance::window_text() const {
  std::string text;
  for (const auto& of_step : window_)
    for (const double s : of_step) text += fmt::format("{}{:a}", text.empty() ? "" : " ", s);
  return text;
}

void Balance::restore_window(const std::string& text) {
  std::vector<double> all;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    double value = 0;
    const bool prefixed = end - at > 2 && at[0] == '0' && at[1] == 'x';
    const auto [stop, error] =
        std::from_chars(at + (prefixed ? 2 : 0), end, value, std::chars_format::hex);
    check<Corrupt>(
        error == std::errc() && (stop == end || *stop == ' ') && std::isfinite(value) && value > 0,
        "balance: the saved times cannot be read: '{}'", text);
    all.push_back(value);
    at = stop == end ? end : stop + 1;
  }
  check<Corrupt>(all.size() % ranks_ == 0, "balance: {} saved times of {} ranks", all.size(),
                 ranks_);
  window_.clear();
  for (size_t i = 0; i < all.size(); i += ranks_)
    window_.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(i),
                         all.begin() + static_cast<std::ptrdiff_t>(i + ranks_));
}

void Balance::state(StateVisitor& v) {
  std::string deal = deal_->text(), times = window_text();
  const std::string deal_before = deal, times_before = times;
  v.value("balance.deal", deal);
  v.value("balance.seconds", times);
  if (deal == deal_before && times == times_before) return;
  // If the ranks differ, they are measured again.
  if (deal_->restore(deal)) {
    restore_window(times);
  } else {
    window_.clear();
    news_ = fmt::format(
        "balance: the checkpoint is of other ranks: starting again with {} samples each",
        shares_text(deal_->newest()));
  }
}

std::string Balance::describe(int64_t step) const {
  return fmt::format("shares follow throughput, initially {}", shares_text(shares(step)));
}

void Balance::metrics(int64_t step, const AddMetric& add) const {
  const Shares all = shares(step);
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  if (all.size() > 16) {
    add("samples_least", static_cast<double>(*least));
    add("samples_most", static_cast<double>(*most));
    return;
  }
  for (size_t r = 0; r < all.size(); ++r)
    add(fmt::format("samples_rank{}", r), static_cast<double>(all[r]));
}

BalanceOptions balance_options(const Config& c, const Batches& batches) {
  const auto balance = c.section<BalanceSection>();
  BalanceOptions o;
  o.samples = batches.train;
  o.every = balance.every;
  o.hysteresis = balance.hysteresis;
  o.least = balance.min_samples;
  const double part = balance.max_share;
  if (part < 1) {
    o.most = static_cast<int64_t>(part * static_cast<double>(batches.train));
    check<UsageError>(o.most >= (batches.train + batches.dp - 1) / batches.dp,
                      "{}: balance.max_share {:g} allows a rank {} of {} samples, and {} ranks "
                      "must cover them all: raise it",
                      c.origin("balance.max_share"), part, o.most, batches.train, batches.dp);
  }
  check<UsageError>(batches.train >= batches.dp * o.least,
                    "{}: balance.min_samples is {}, and a step of {} samples has fewer for each of "
                    "{} ranks: make train_batch_size larger, or start fewer ranks",
                    c.origin("balance.min_samples"), o.least, batches.train, batches.dp);
  return o;
}

int64_t most_at_once(const Config& c, const Batches& batches, int rank) {
  const auto list = c.section<BalanceSection>().max_samples;
  if (list.empty()) return batches.micro;
  check<UsageError>(
      list.size() == 1 || list.size() == static_cast<size_t>(batches.dp),
      "{}: balance.max_samples lists {} numbers for {} ranks: give one for all, or one per rank",
      c.origin("balance.max_samples"), list.size(), batches.dp);
  return list[list.size() == 1 ? 0 : static_cast<size_t>(rank)];
}

}  // namespace trireme
