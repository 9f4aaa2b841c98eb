// SPDX-License-Identifier: Apache-2.0
// Every plan, played on integers: all sizes up to 16 ranks, counts that do and do not divide.
#include "trireme/comm/plan/plan.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "trireme/base/error.h"
#include "trireme/comm/plan/algorithm.h"
#include "trireme/comm/plan/two_level_plan.h"

namespace plan_test {

using namespace trireme;
using namespace trireme::plan;

namespace {

using Value = uint64_t;
using Op = std::function<Value(Value, Value)>;

Value sum(Value a, Value b) { return a + b; }
/// Neither commutative nor associative: equal results mean the same expression.
Value expression(Value a, Value b) {
  Value h = a * 0x9e3779b97f4a7c15 + b * 0xc2b2ae3d27d4eb4f + 1;
  return h ^ (h >> 29);
}

Value input(int rank, size_t element) {
  return (static_cast<Value>(rank) + 1) * 1000003 + element * 7;
}

/// The group's order: split at the largest power of two below n.
Value in_order(const Op& op, int lo, int n, size_t element) {
  if (n == 1) return input(lo, element);
  int p = 1;
  while (2 * p < n) p *= 2;
  return op(in_order(op, lo, p, element), in_order(op, lo + p, n - p, element));
}

std::vector<Plan> plans_of(Algorithm a, int n, size_t count, const std::vector<int>& hosts = {}) {
  std::vector<Plan> plans;
  for (int r = 0; r < n; ++r) plans.push_back(make_plan(a, r, n, count, hosts));
  return plans;
}

struct Memory {
  std::vector<Value> tensor, scratch;
  Value* at(const Span& s) { return (s.scratch ? scratch : tensor).data() + s.at.begin; }
};

/// Runs the plans round by round as the contract of Plan says; ADD_FAILURE where they break it.
std::vector<Memory> play(const std::vector<Plan>& plans, size_t count, const Op& op) {
  const int n = static_cast<int>(plans.size());
  std::vector<Memory> memory;
  for (int r = 0; r < n; ++r) {
    Memory m;
    for (size_t i = 0; i < count; ++i) m.tensor.push_back(input(r, i));
    m.scratch.assign(plans[size_t(r)].scratch, ~Value{0});
    memory.push_back(m);
  }
  std::vector<size_t> next(plans.size());
  for (int round = 0; round < plans[0].rounds; ++round) {
    std::map<std::pair<int, int>, std::deque<std::vector<Value>>> wire;
    auto each = [&](int r, auto f) {
      const auto& steps = plans[size_t(r)].steps;
      for (size_t i = next[size_t(r)]; i < steps.size() && steps[i].round == round; ++i)
        f(steps[i]);
    };
    for (int r = 0; r < n; ++r) {
      std::vector<bool> read(count), written(count), scratch(memory[size_t(r)].scratch.size());
      each(r, [&](const Step& s) {
        const size_t limit = s.span.scratch ? scratch.size() : count;
        if (s.span.at.end > limit || s.span.at.empty()) ADD_FAILURE() << "a span out of bounds";
        if (s.kind == Step::reduce) return;
        if (s.peer < 0 || s.peer >= n || s.peer == r) ADD_FAILURE() << "peer " << s.peer;
        for (size_t i = s.span.at.begin; i < s.span.at.end; ++i) {
          auto& own = s.span.scratch ? scratch : s.kind == Step::send ? read : written;
          if (s.kind == Step::recv && own[i]) ADD_FAILURE() << "received twice into one place";
          own[i] = true;
        }
        if (s.kind == Step::send) {
          const Value* p = memory[size_t(r)].at(s.span);
          wire[{r, s.peer}].emplace_back(p, p + s.span.at.size());
        }
      });
      for (size_t i = 0; i < count; ++i)
        if (read[i] && written[i]) ADD_FAILURE() << "element " << i << " both sent and received";
    }
    for (int r = 0; r < n; ++r) {
      each(r, [&](const Step& s) {
        Memory& m = memory[size_t(r)];
        if (s.kind == Step::recv) {
          auto& queue = wire[{s.peer, r}];
          if (queue.empty() || queue.front().size() != s.span.at.size()) {
            ADD_FAILURE() << "round " << round << ": rank " << r << " waits for rank " << s.peer;
            return;
          }
          std::copy(queue.front().begin(), queue.front().end(), m.at(s.span));
          queue.pop_front();
        } else if (s.kind == Step::reduce) {
          if (s.span.at.size() != s.other.at.size()) ADD_FAILURE() << "sizes differ";
          Value *into = m.at(s.span), *other = m.at(s.other);
          for (size_t i = 0; i < s.span.at.size(); ++i)
            into[i] = s.other_first ? op(other[i], into[i]) : op(into[i], other[i]);
        }
      });
      const auto& steps = plans[size_t(r)].steps;
      size_t& at = next[size_t(r)];
      while (at < steps.size() && steps[at].round == round) ++at;
    }
    for (const auto& [pair, queue] : wire)
      if (!queue.empty())
        ADD_FAILURE() << "round " << round << ": rank " << pair.second << " does not take what "
                      << pair.first << " sends";
  }
  for (int r = 0; r < n; ++r)
    if (next[size_t(r)] != plans[size_t(r)].steps.size()) ADD_FAILURE() << "steps are left";
  return memory;
}

std::vector<size_t> counts_for(int n) {
  const auto s = static_cast<size_t>(n);
  return {0, 1, 2, s - 1, s, s + 1, 2 * s + 1, 7 * s + 3, 64};
}

void expect_sums(const std::vector<Plan>& plans, size_t count, bool ordered) {
  const int n = static_cast<int>(plans.size());
  const auto sums = play(plans, count, sum), expressions = play(plans, count, expression);
  for (size_t i = 0; i < count; ++i) {
    const Value wanted = in_order(sum, 0, n, i);
    const Value tree = ordered ? in_order(expression, 0, n, i) : expressions[0].tensor[i];
    for (size_t r = 0; r < plans.size(); ++r) {
      ASSERT_EQ(sums[r].tensor[i], wanted) << "rank " << r << ", element " << i;
      ASSERT_EQ(expressions[r].tensor[i], tree)
          << "rank " << r << ", element " << i << ": another order of reduction";
    }
  }
}

const char* where(Algorithm a, int n, size_t count) {
  static std::string text;
  text = std::string(name_of(a)) + " over " + std::to_string(n) + " ranks, " +
         std::to_string(count) + " elements";
  return text.c_str();
}

/// All ways to put n ranks in order on hosts of the given sizes, cut to n.
std::vector<int> blocks(int n, const std::vector<int>& sizes) {
  std::vector<int> hosts;
  for (size_t h = 0; static_cast<int>(hosts.size()) < n; ++h)
    for (int i = 0; i < sizes[h % sizes.size()] && static_cast<int>(hosts.size()) < n; ++i)
      hosts.push_back(static_cast<int>(h));
  return hosts;
}

int log2_up(int n) {
  int k = 0;
  while ((1 << k) < n) ++k;
  return k;
}

}  // namespace

TEST(comm_plan_plan, every_plan_sums_on_all_ranks_without_deadlock_in_one_order) {
  for (Algorithm a : kAlgorithms)
    for (int n = 1; n <= 16; ++n)
      for (size_t count : counts_for(n)) {
        SCOPED_TRACE(where(a, n, count));
        expect_sums(plans_of(a, n, count), count, keeps_order(a, {}));
        if (HasFatalFailure() || HasNonfatalFailure()) return;
      }
}

TEST(comm_plan_plan, two_levels_sum_on_any_hosts_and_know_when_they_keep_the_order) {
  size_t kept = 0;
  for (int n = 1; n <= 16; ++n)
    for (const auto& sizes : std::vector<std::vector<int>>{
             {1}, {2}, {3}, {4}, {8}, {16}, {1, 2}, {2, 1}, {4, 3}, {2, 5, 1}})
      for (bool mixed : {false, true}) {
        std::vector<int> hosts = blocks(n, sizes);
        if (mixed)
          for (size_t r = 0; r < hosts.size(); ++r) hosts[r] = static_cast<int>(r * 7 % 3);
        const bool ordered = two_level_keeps_order(hosts);
        kept += ordered;
        for (size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{37}}) {
          SCOPED_TRACE(where(Algorithm::two_level, n, count));
          expect_sums(plans_of(Algorithm::two_level, n, count, hosts), count, ordered);
          if (HasFatalFailure() || HasNonfatalFailure()) return;
        }
      }
  EXPECT_GT(kept, 60u);
  EXPECT_TRUE(two_level_keeps_order({5, 5, 2, 2, 9}));
  EXPECT_FALSE(two_level_keeps_order({0, 0, 0, 1, 1, 1}));  // blocks of three
  EXPECT_FALSE(two_level_keeps_order({0, 1, 0, 1}));        // neighbours on two hosts
  EXPECT_FALSE(two_level_keeps_order({0, 1, 1}));           // the last host has more
}

TEST(comm_plan_plan, a_ring_sends_two_times_all_but_one_chunk) {
  for (int n = 1; n <= 16; ++n)
    for (size_t count : counts_for(n))
      for (const Plan& p : plans_of(Algorithm::ring, n, count)) {
        const auto s = static_cast<size_t>(n);
        const size_t exact = 2 * (s - 1) * count;  // times n
        EXPECT_LE(p.sent() * s, exact + 2 * s) << where(Algorithm::ring, n, count);
        EXPECT_GE(p.sent() * s + 2 * s, exact) << where(Algorithm::ring, n, count);
        EXPECT_LE(p.received() * s, exact + 2 * s);
        EXPECT_GE(p.received() * s + 2 * s, exact);
        if (count % s == 0) {
          EXPECT_EQ(p.sent() * s, exact);
        }
        EXPECT_EQ(p.rounds, 2 * (n - 1));
      }
}

TEST(comm_plan_plan, halving_and_direct_send_as_little_as_a_ring) {
  for (int n : {1, 2, 4, 8, 16}) {
    const auto s = static_cast<size_t>(n);
    const size_t count = 16 * 5;
    for (Algorithm a : {Algorithm::halving_doubling, Algorithm::direct})
      for (const Plan& p : plans_of(a, n, count)) {
        EXPECT_EQ(p.sent(), 2 * (s - 1) * count / s) << where(a, n, count);
        EXPECT_EQ(p.received(), p.sent());
      }
    EXPECT_EQ(plans_of(Algorithm::halving_doubling, n, count)[0].rounds, 2 * log2_up(n));
  }
  // Any other number: the owners of the right part send once more.
  for (int n = 1; n <= 16; ++n)
    for (const Plan& p : plans_of(Algorithm::halving_doubling, n, 960)) {
      EXPECT_LE(p.sent(), 2 * 960u) << n;
      EXPECT_LE(p.received(), 2 * 960u) << n;
      EXPECT_LE(p.rounds, 2 * log2_up(n) + 2) << n;
    }
}

TEST(comm_plan_plan, a_tree_sends_everything_once_up_and_once_down) {
  for (int n = 1; n <= 16; ++n) {
    const size_t count = 30;
    size_t sent = 0, inner = 0;
    for (const Plan& p : plans_of(Algorithm::tree, n, count)) sent += p.sent();
    EXPECT_EQ(sent, 2 * static_cast<size_t>(n - 1) * count);
    sent = 0;
    const auto pair = plans_of(Algorithm::double_tree, n, count);
    for (const Plan& p : pair) {
      sent += p.sent();
      // At most two children and a parent in one tree, a parent in the other.
      EXPECT_LE(p.sent(), 2 * count + (n % 2 ? count : 0));
      size_t reductions[2] = {};
      for (const Step& s : p.steps)
        if (s.kind == Step::reduce) ++reductions[s.span.at.begin > 0];
      EXPECT_LE(reductions[0], 2u);
      EXPECT_LE(reductions[1], 2u);
      inner += reductions[0] && reductions[1];
    }
    EXPECT_EQ(sent, 2 * static_cast<size_t>(n - 1) * count);
    EXPECT_LE(inner, static_cast<size_t>(n % 2)) << n << " ranks";
    EXPECT_EQ(plans_of(Algorithm::tree, n, count)[0].rounds, 2 * log2_up(n));
    EXPECT_LE(pair[0].rounds, 2 * log2_up(n) + 2) << n;
  }
}

TEST(comm_plan_plan, two_levels_cross_the_network_with_one_part_a_rank) {
  const size_t count = 96;
  const std::vector<int> hosts{0, 0, 0, 0, 1, 1, 1, 1};
  const auto plans = plans_of(Algorithm::two_level, 8, count, hosts);
  for (size_t r = 0; r < plans.size(); ++r) {
    size_t across = 0;
    for (const Step& s : plans[r].steps)
      if (s.kind == Step::send && hosts[size_t(s.peer)] != hosts[r]) across += s.span.at.size();
    EXPECT_EQ(across, 2 * (2 - 1) * (count / 4) / 2);
  }
}

TEST(comm_plan_plan, scratch_is_no_more_than_the_tensor_but_for_two_tree_halves) {
  for (int n = 1; n <= 16; ++n)
    for (size_t count : counts_for(n))
      for (Algorithm a : kAlgorithms)
        for (const Plan& p : plans_of(a, n, count)) {
          const size_t limit = a == Algorithm::double_tree ? 2 * count + 2 : count + 16;
          EXPECT_LE(p.scratch, limit) << where(a, n, count);
        }
}

TEST(comm_plan_plan, huge_counts_do_not_overflow) {
  const size_t count = (size_t{1} << 48) - 1;
  for (Algorithm a : kAlgorithms) {
    const Plan p = make_plan(a, 6, 7, count);
    EXPECT_GE(p.sent(), count / 2) << name_of(a);
    EXPECT_LE(p.sent(), 4 * count) << name_of(a);
  }
}

TEST(comm_plan_plan, the_pairwise_order_is_the_split_at_the_largest_power_of_two) {
  for (int n = 1; n <= 70; ++n) {
    std::vector<Value> values;
    for (int r = 0; r < n; ++r) values.push_back(input(r, 0));
    for (auto [i, j] : pairwise_order(n))
      values[size_t(i)] = expression(values[size_t(i)], values[size_t(j)]);
    EXPECT_EQ(values[0], in_order(expression, 0, n, 0)) << n;
  }
}

TEST(comm_plan_plan, a_rank_or_hosts_that_are_not_of_the_group_are_refused) {
  EXPECT_THROW(make_plan(Algorithm::ring, 3, 3, 8), UsageError);
  EXPECT_THROW(make_plan(Algorithm::ring, -1, 3, 8), UsageError);
  EXPECT_THROW(make_plan(Algorithm::ring, 0, 0, 8), UsageError);
  EXPECT_THROW(make_plan(Algorithm::two_level, 0, 3, 8, {0, 0}), UsageError);
}

}  // namespace plan_test
