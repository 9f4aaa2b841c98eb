// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/balance_plan.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/check.h"

namespace trireme {
namespace {

struct Room {
  int64_t least, most;
};

Room room_of(const BalanceInputs& in) {
  const auto ranks = static_cast<int64_t>(in.seconds_per_sample.size());
  check<UsageError>(ranks > 0 && in.least >= 0 && in.samples >= ranks * in.least,
                    "{} samples a step are too few for {} ranks with {} or more each: make "
                    "train_batch_size larger, or start fewer ranks",
                    in.samples, ranks, in.least);
  const int64_t most = in.most > 0 ? in.most : in.samples;
  check<UsageError>(most >= in.least && most >= (in.samples + ranks - 1) / ranks,
                    "{} samples a step do not fit {} ranks with {} at most each: raise the limit "
                    "or make train_batch_size smaller",
                    in.samples, ranks, most);
  for (const double s : in.seconds_per_sample)
    check<UsageError>(std::isfinite(s) && s > 0, "a sample took {} seconds", s);
  return {in.least, most};
}

// Samples that a rank does in t seconds.
int64_t within(double t, double seconds, Room room) {
  const double n = std::floor(t / seconds);
  return n >= static_cast<double>(room.most)
             ? room.most
             : std::clamp(static_cast<int64_t>(n), room.least, room.most);
}

}  // namespace

Shares equal_shares(int64_t samples, int ranks, int64_t least) {
  return balanced_shares({std::vector<double>(static_cast<size_t>(ranks), 1.0), samples, least, 0});
}

Shares balanced_shares(const BalanceInputs& in) {
  const Room room = room_of(in);
  const auto& seconds = in.seconds_per_sample;
  const size_t ranks = seconds.size();
  auto fill = [&](double t) {
    Shares shares;
    for (const double s : seconds) shares.push_back(within(t, s, room));
    return shares;
  };
  auto sum = [](const Shares& shares) {
    int64_t all = 0;
    for (const int64_t n : shares) all += n;
    return all;
  };
  // The longest time in which not more than all samples are done, nearly; then one by one to
  // whoever is through first.
  double low = 0,
         high = *std::max_element(seconds.begin(), seconds.end()) * static_cast<double>(in.samples);
  for (int i = 0; i < 64; ++i) {
    const double middle = low + (high - low) / 2;
    (sum(fill(middle)) <= in.samples ? low : high) = middle;
  }
  Shares shares = fill(low);
  for (int64_t left = in.samples - sum(shares); left > 0; --left) {
    size_t best = ranks;
    double best_time = 0;
    for (size_t r = 0; r < ranks; ++r) {
      if (shares[r] >= room.most) continue;
      const double time = static_cast<double>(shares[r] + 1) * seconds[r];
      if (best == ranks || time < best_time) best = r, best_time = time;
    }
    ++shares[best];
  }
  return shares;
}

double slowest(const Shares& shares, const std::vector<double>& seconds_per_sample) {
  double most = 0;
  for (size_t r = 0; r < shares.size(); ++r)
    most = std::max(most, static_cast<double>(shares[r]) * seconds_per_sample[r]);
  return most;
}

Shares next_shares(const Shares& now, const BalanceInputs& in, double hysteresis) {
  Shares best = balanced_shares(in);
  return slowest(best, in.seconds_per_sample) <
                 slowest(now, in.seconds_per_sample) * (1 - hysteresis)
             ? best
             : now;
}

std::vector<int64_t> cut_share(int64_t samples, int64_t most) {
  check<UsageError>(samples >= 0 && most >= 1, "{} samples in micro-batches of at most {}", samples,
                    most);
  const int64_t count = (samples + most - 1) / most;
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < count; ++i)
    sizes.push_back(samples / count + (i < samples % count ? 1 : 0));
  return sizes;
}

}  // namespace trireme
