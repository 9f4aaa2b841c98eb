// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/batches.h"

#include <limits>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr const char* kTrain = "train_batch_size";
constexpr const char* kMicro = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";

std::string named(const char* key, const BatchNumber& number) {
  return fmt::format("{} {} ({})", key, number.value, number.origin);
}

std::string ranks(int dp) { return fmt::format("{} {}", dp, dp == 1 ? "rank" : "ranks"); }

int64_t product(int64_t a, int64_t b) {
  __int128 p = static_cast<__int128>(a) * b;
  check<UsageError>(p <= std::numeric_limits<int64_t>::max(), "the batch {} × {} is too large", a,
                    b);
  return static_cast<int64_t>(p);
}

/// Returns train / (factor × dp); `factor_text` names the factor in errors.
int64_t divide(const BatchNumber& train, int64_t factor, int dp, const std::string& factor_text) {
  int64_t by = product(factor, dp);
  if (train.value % by != 0) {
    int64_t below = train.value / by * by;
    fail<UsageError>("{} is not divisible by {}{}: use {}{}", named(kTrain, train), factor_text,
                     ranks(dp), below > 0 ? fmt::format("{} or ", below) : "",
                     product(below / by + 1, by));
  }
  return train.value / by;
}

Batches solve(const BatchInputs& given, int dp) {
  const auto& [train, micro, accumulation] = given;
  for (const auto& [key, number] :
       {std::pair{kTrain, &train}, {kMicro, &micro}, {kAccumulation, &accumulation}})
    if (*number)
      check<UsageError>((*number)->value >= 1, "{} must be at least 1", named(key, **number));
  check<UsageError>(
      train || micro,
      "no batch size given: set {} (samples for one rank) or {} (samples over all ranks)", kMicro,
      kTrain);
  Batches out;
  out.dp = dp;
  if (!train) {
    out.micro = micro->value;
    out.accumulation = accumulation ? accumulation->value : 1;
    out.train = product(product(out.micro, out.accumulation), dp);
    return out;
  }
  out.train = train->value;
  if (!micro) {
    out.accumulation = accumulation ? accumulation->value : 1;
    out.micro = divide(*train, out.accumulation, dp,
                       accumulation ? named(kAccumulation, *accumulation) + " × " : std::string());
    return out;
  }
  out.micro = micro->value;
  if (!accumulation) {
    out.accumulation = divide(*train, out.micro, dp, named(kMicro, *micro) + " × ");
    return out;
  }
  out.accumulation = accumulation->value;
  int64_t actual = product(product(out.micro, out.accumulation), dp);
  check<UsageError>(actual == out.train,
                    "{} is not {} × {} × {} = {}: change one, or leave one out to have it derived",
                    named(kTrain, *train), named(kMicro, *micro),
                    named(kAccumulation, *accumulation), ranks(dp), actual);
  return out;
}

}  // namespace

Batches solve_batches(const BatchInputs& given, int dp) {
  check<UsageError>(dp >= 1, "a batch needs at least one data-parallel rank, got {}", dp);
  BatchInputs firm = given;
  std::string gave_way;
  auto drop = [&](const char* key, std::optional<BatchNumber> BatchInputs::*member) {
    if (!(firm.*member) || !(firm.*member)->yields) return;
    gave_way += (gave_way.empty() ? "" : ", ") + named(key, *(firm.*member));
    (firm.*member).reset();
  };
  drop(kTrain, &BatchInputs::train);
  drop(kMicro, &BatchInputs::micro);
  drop(kAccumulation, &BatchInputs::accumulation);
  if (gave_way.empty()) return solve(given, dp);
  try {
    return solve(given, dp);
  } catch (const UsageError&) {
    Batches out = solve(firm, dp);  // what it throws now is about the newer numbers alone
    out.note = fmt::format("{} does not fit the later batch sizes on {} and was derived again",
                           gave_way, ranks(dp));
    return out;
  }
}

Batches on_fewer_ranks(const Batches& of_all, int dp, bool scaled) {
  Batches out = of_all;
  out.dp = dp;
  if (scaled)
    out.train = product(product(out.micro, out.accumulation), dp);
  else
    out.accumulation = (of_all.micro_batches() + dp - 1) / dp;
  return out;
}

}  // namespace trireme
