// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/autograd/plan/backward_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::rpc_autograd_plan_test {
namespace {

using namespace rpc::backward_plan;

int draw(std::mt19937_64& random, int below) {
  return std::uniform_int_distribution<int>(0, below - 1)(random);
}

/// A backward over some workers: messages go along a hidden order, so that none depends on itself.
std::vector<Entry> random_entries(std::mt19937_64& random) {
  const int workers = 1 + draw(random, 4);
  const int messages = draw(random, 14);
  std::vector<int> at(static_cast<size_t>(messages));
  for (int& worker : at) worker = draw(random, workers);
  std::vector<Entry> entries{{0, kLosses, {}, {}}};
  for (int i = 0; i < messages; ++i) entries.push_back({at[static_cast<size_t>(i)], i, {}, {}});
  // The sender of message i is a worker that has an entry before it.
  for (int i = 0; i < messages; ++i) {
    const int through = draw(random, i + 1);  // 0: the losses; k: message k − 1
    const int sender = entries[static_cast<size_t>(through)].worker;
    entries[static_cast<size_t>(through)].exits.push_back(i);
    for (int k = 0; k <= i; ++k)  // others may lead there too, on the same worker
      if (k != through && entries[static_cast<size_t>(k)].worker == sender && draw(random, 4) == 0)
        entries[static_cast<size_t>(k)].exits.push_back(i);
  }
  for (size_t i = 0; i < entries.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (entries[k].worker == entries[i].worker && draw(random, 8) == 0)
        entries[i].touches.push_back(static_cast<int>(k));
  // As they are found: in any order.
  std::vector<int> order(entries.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::shuffle(order.begin() + 1, order.end(), random);
  std::vector<int> place(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    place[static_cast<size_t>(order[i])] = static_cast<int>(i);
  std::vector<Entry> shuffled;
  for (const int i : order) {
    shuffled.push_back(entries[static_cast<size_t>(i)]);
    for (int& other : shuffled.back().touches) other = place[static_cast<size_t>(other)];
  }
  return shuffled;
}

/// Runs the passes with an engine that does, of what it may do, whatever is worst: it takes a
/// waiting entry before exits that could leave. False: something hangs.
bool comes_to_an_end(const std::vector<Entry>& entries, const std::vector<Pass>& passes,
                     std::mt19937_64& random) {
  std::map<int, const Entry*> by_message;
  for (const Entry& entry : entries) by_message[entry.message] = &entry;
  std::set<int> sent{kLosses};
  struct Run {
    std::set<int> entered, left;
    int blocked_on = kLosses;  // it has begun to wait for it; kLosses: for none
  };
  std::vector<Run> runs(passes.size());
  for (bool moved = true; moved;) {
    moved = false;
    std::vector<size_t> order(passes.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t p : order) {
      const Pass& pass = passes[p];
      Run& run = runs[p];
      if (!pass.waits) {
        const bool all = std::all_of(pass.entries.begin(), pass.entries.end(),
                                     [&](int entry) { return sent.contains(entry); });
        if (!all || run.entered.size() == pass.entries.size()) continue;
        run.entered.insert(pass.entries.begin(), pass.entries.end());
        sent.insert(pass.exits.begin(), pass.exits.end());
        moved = true;
        continue;
      }
      if (run.blocked_on != kLosses) {
        if (!sent.contains(run.blocked_on)) continue;
        run.entered.insert(run.blocked_on);
        run.blocked_on = kLosses;
        moved = true;
      }
      // What it may do next, an entry to wait for or an exit to send.
      std::vector<std::pair<bool, int>> may;
      for (size_t i = 0; i < pass.entries.size(); ++i) {
        const int entry = pass.entries[i];
        if (run.entered.contains(entry)) continue;
        if (std::all_of(pass.after[i].begin(), pass.after[i].end(),
                        [&](int exit) { return run.left.contains(exit); }))
          may.emplace_back(true, entry);
      }
      for (const int exit : pass.exits) {
        if (run.left.contains(exit)) continue;
        bool all = true;
        for (const int entry : pass.entries) {
          const auto& exits = by_message[entry]->exits;
          if (std::find(exits.begin(), exits.end(), exit) != exits.end())
            all = all && run.entered.contains(entry);
        }
        if (all) may.emplace_back(false, exit);
      }
      if (may.empty()) continue;
      moved = true;
      const auto [waits, message] =
          may[static_cast<size_t>(draw(random, static_cast<int>(may.size())))];
      if (!waits) {
        run.left.insert(message);
        sent.insert(message);
      } else if (sent.contains(message)) {
        run.entered.insert(message);
      } else {
        run.blocked_on = message;
      }
    }
  }
  for (size_t p = 0; p < passes.size(); ++p)
    if (runs[p].entered.size() != passes[p].entries.size()) return false;
  for (const Pass& pass : passes)
    for (const int exit : pass.exits)
      if (!sent.contains(exit)) return false;
  return true;
}

std::string shown(const std::vector<Entry>& entries) {
  std::string text;
  for (const Entry& entry : entries) {
    text += "worker " + std::to_string(entry.worker) + " gets " + std::to_string(entry.message) +
            " sends";
    for (const int exit : entry.exits) text += " " + std::to_string(exit);
    text += "\n";
  }
  return text;
}

std::vector<const Pass*> of_worker(const std::vector<Pass>& passes, int worker) {
  std::vector<const Pass*> found;
  for (const Pass& pass : passes)
    if (pass.worker == worker) found.push_back(&pass);
  return found;
}

}  // namespace

TEST(rpc_autograd_plan_backward_plan, every_entry_and_exit_is_in_one_pass_and_nothing_hangs) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    const auto entries = random_entries(random);
    const bool one_pass = seed % 3 == 0;
    const auto passes = make_passes(entries, one_pass);
    std::map<int, int> entered, left;
    for (const Pass& pass : passes) {
      for (const int entry : pass.entries) ++entered[entry];
      for (const int exit : pass.exits) ++left[exit];
      if (pass.waits) {
        ASSERT_EQ(pass.after.size(), pass.entries.size());
      }
    }
    for (const Entry& entry : entries) EXPECT_EQ(entered[entry.message], 1) << seed;
    for (const auto& [message, times] : left) EXPECT_EQ(times, 1) << seed;
    EXPECT_EQ(left.size() + 1, entries.size()) << seed;
    for (int worst = 0; worst < 4; ++worst)
      ASSERT_TRUE(comes_to_an_end(entries, passes, random)) << "seed " << seed << "\n"
                                                            << shown(entries);
  }
}

TEST(rpc_autograd_plan_backward_plan, waiting_without_an_order_would_hang) {
  // The same passes without `after`: the test above can fail.
  int hung = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto entries = random_entries(random);
    auto passes = make_passes(entries, true);
    for (Pass& pass : passes)
      for (auto& after : pass.after) after.clear();
    hung += comes_to_an_end(entries, passes, random) ? 0 : 1;
  }
  EXPECT_GT(hung, 10);
}

TEST(rpc_autograd_plan_backward_plan, a_call_there_and_back_waits_only_where_it_must) {
  // 0 calls 1; the argument was computed by 0: its gradient comes back.
  const auto passes = make_passes({{0, kLosses, {0}, {}}, {1, 0, {1}, {}}, {0, 1, {}, {0}}}, false);
  ASSERT_EQ(passes.size(), 2u);
  EXPECT_TRUE(of_worker(passes, 0)[0]->waits);
  EXPECT_EQ(of_worker(passes, 0)[0]->entries, (std::vector<int>{kLosses, 1}));
  EXPECT_EQ(of_worker(passes, 0)[0]->after[1], std::vector<int>{0});
  EXPECT_FALSE(of_worker(passes, 1)[0]->waits);
}

TEST(rpc_autograd_plan_backward_plan, what_shares_no_node_is_a_pass_of_its_own) {
  // As above, but what was sent has nothing in common with the losses.
  const std::vector<Entry> entries{{0, kLosses, {0}, {}}, {1, 0, {1}, {}}, {0, 1, {}, {}}};
  const auto passes = make_passes(entries, false);
  ASSERT_EQ(of_worker(passes, 0).size(), 2u);
  for (const Pass& pass : passes) EXPECT_FALSE(pass.waits);
  EXPECT_EQ(of_worker(make_passes(entries, true), 0).size(), 1u);
}

TEST(rpc_autograd_plan_backward_plan, two_calls_of_one_worker_do_not_wait_for_each_other) {
  const auto passes =
      make_passes({{0, kLosses, {0, 1}, {}}, {1, 0, {}, {}}, {1, 1, {}, {}}}, false);
  EXPECT_EQ(of_worker(passes, 1).size(), 2u);
  const auto shared =
      make_passes({{0, kLosses, {0, 1}, {}}, {1, 0, {}, {}}, {1, 1, {}, {1}}}, false);
  EXPECT_EQ(of_worker(shared, 1).size(), 1u);
  EXPECT_FALSE(of_worker(shared, 1)[0]->waits);
}

TEST(rpc_autograd_plan_backward_plan, what_cannot_be_is_refused) {
  EXPECT_THROW(make_passes({{0, kLosses, {0}, {}}}, false), Corrupt) << "nobody gets it";
  EXPECT_THROW(make_passes({{0, kLosses, {0}, {}}, {1, 0, {}, {}}, {2, 0, {}, {}}}, false),
               Corrupt);
  EXPECT_THROW(make_passes({{0, kLosses, {}, {}}, {1, 0, {1}, {}}, {0, 1, {0}, {}}}, false),
               Corrupt);
  EXPECT_THROW(make_passes({{0, kLosses, {}, {5}}}, false), Corrupt);
  EXPECT_TRUE(make_passes({}, false).empty());
}

}  // namespace trireme::rpc_autograd_plan_test
