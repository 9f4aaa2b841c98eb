// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/sharding.h"

#include "trireme/base/check.h"

namespace trireme {
namespace {

std::string count_of_ranks(int64_t n) { return fmt::format("{} {}", n, n == 1 ? "rank" : "ranks"); }

/// The ranks among which data is divided, and where they come from if that is not all.
std::string data_parallel_ranks(const Degrees& d) {
  if (d.together() == 1) return count_of_ranks(d.dp);
  return fmt::format("dp {} ({} = dp {}{} × tp {} × pp {})", d.dp,
                     count_of_ranks(d.dp * d.together()), d.dp,
                     d.cp > 1 ? fmt::format(" × cp {}", d.cp) : "", d.tp, d.pp);
}

/// Returns dp / number, or throws UsageError if it does not divide.
int rest_of(const Degrees& degrees, const char* key, const ShardingInputs::Number& number) {
  check<UsageError>(number.value <= degrees.dp && degrees.dp % number.value == 0,
                    "{} {} ({}) does not divide {}: use a divisor of {}, or leave it out", key,
                    number.value, number.origin, data_parallel_ranks(degrees), degrees.dp);
  return static_cast<int>(degrees.dp / number.value);
}

}  // namespace

Sharding solve_sharding(const ShardingInputs& given, const Degrees& degrees) {
  const int dp = degrees.dp;
  const auto &shard = given.shard, &replicate = given.replicate;
  check<UsageError>(dp >= 1, "sharding needs at least one data-parallel rank, got {}", dp);
  check<UsageError>(given.stage > 0 || shard.value <= 1,
                    "parallelism.dp_shard is {} ({}), and zero_optimization.stage 0 shards "
                    "nothing: set the stage to 1, 2 or 3, or leave it out",
                    shard.value, shard.origin);
  Sharding out{given.stage, given.stage > 0 ? dp : 1, given.stage > 0 ? 1 : dp};
  if (shard.value > 0 && given.stage > 0) {
    out.dp_shard = static_cast<int>(shard.value);
    out.dp_replicate = rest_of(degrees, "parallelism.dp_shard", shard);
  }
  if (replicate.value == 0) return out;
  const int left = rest_of(degrees, "parallelism.dp_replicate", replicate);
  if (shard.value > 0 || given.stage == 0)
    check<UsageError>(out.dp_replicate == replicate.value,
                      "parallelism.dp_replicate {} ({}) × dp_shard {} ({}) is not {}: change one, "
                      "or leave one out",
                      replicate.value, replicate.origin, out.dp_shard,
                      given.stage == 0 ? "zero_optimization.stage 0" : shard.origin,
                      data_parallel_ranks(degrees));
  out.dp_replicate = static_cast<int>(replicate.value);
  out.dp_shard = given.stage > 0 ? left : 1;
  return out;
}

}  // namespace trireme
