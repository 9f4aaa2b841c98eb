// SPDX-License-Identifier: Apache-2.0
// What each rank has for itself, in a run that goes on with another number of ranks: the rules of
// trireme/tensor/state.h in the trainer's own state, before the next step.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "tests/support/refusals.h"
#include "tests/train/programs.h"
#include "tests/train/run_folders.h"
#include "trireme/train/program/make_trainer.h"

namespace resume_rank_state_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

/// What each rank has under one name.
struct OfRanks {
  std::map<int, at::Tensor> ranks;
  at::Tensor sum() const {
    at::Tensor all = at::zeros_like(ranks.at(0), at::kDouble);
    for (const auto& [rank, tensor] : ranks) all += tensor.to(at::kDouble);
    return all;
  }
  at::Tensor mean() const { return sum() / static_cast<double>(ranks.size()); }
  bool apart() const {
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](const auto& r) { return !r.second.equal(ranks.at(0)); });
  }
};
using RankState = std::map<std::string, OfRanks>;

struct Seen {
  std::mutex mutex;
  std::map<int64_t, RankState> before;  // the step after so many
  std::vector<std::string> said;
};

struct RankStateVisitor final : StateVisitor {
  RankStateVisitor(Seen& all, int64_t after) : seen(all), step(after) {}
  using StateVisitor::tensor;
  void tensor(const Slice&, at::Tensor) override {}
  void rank_tensor(const std::string& name, int rank, int /*ranks*/, RankStateRule,
                   at::Tensor local) override {
    std::lock_guard lock(seen.mutex);
    seen.before[step][name].ranks[rank] = local.detach().clone();
  }
  void value(const std::string&, int64_t&) override {}
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}
  Seen& seen;
  int64_t step;
};

struct Watched : DigitsProgram {
  explicit Watched(Seen& s) : seen(s) {}
  void step(Trainer& t) override {
    RankStateVisitor visitor(seen, t.step());
    t.impl().state(visitor);
    t.update("all", t.next_batch());
  }
  Seen& seen;
};

/// Trains on n ranks into `folder` until `steps` are done; further from `from`, if that is given.
std::unique_ptr<Seen> trained(int n, const Sets& sets, int64_t steps, const std::string& folder,
                              const std::string& from = "") {
  Sets all = {"data.workers=0", "checkpoint.every=1", "checkpoint.keep=99", "train_batch_size=16",
              fmt::format("training.steps={}", steps)};
  all.insert(all.end(), sets.begin(), sets.end());
  const Config config = Config::from_text("p.json", R"({
    "gradient_clipping": 0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})",
                                          all);
  auto seen = std::make_unique<Seen>();
  run_threads(
      n,
      [&](Group g) {
        Watched program(*seen);
        TrainOptions options;
        options.run_dir = folder;
        if (!from.empty()) options.resume = from;
        options.say = [&](const std::string& line) { seen->said.push_back(line); };
        train(program, config, g, options);
      },
      std::chrono::seconds(60));
  return seen;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>() /
         (b.norm().item<double>() + 1e-30);
}

/// Three steps on `before` ranks, after which others go on.
struct GoneOn {
  GoneOn(int before, int after, const Sets& sets)
      : first(trained(before, sets, 4, f.run("first"))),
        second(trained(after, sets, 5, f.run("second"), from())),
        saved(first->before.at(3)),
        begun(second->before.at(3)) {
    EXPECT_EQ(begun.size(), saved.size());
    for (const auto& [name, state] : saved) {
      EXPECT_EQ(state.ranks.size(), static_cast<size_t>(before)) << name;
      EXPECT_EQ(begun[name].ranks.size(), static_cast<size_t>(after)) << name;
      EXPECT_TRUE(state.apart()) << name << " is the same on all ranks: it shows no rule";
    }
    EXPECT_TRUE(second->before.contains(4)) << "no step was taken";
  }
  std::string from() const { return f.run("first") + "/" + step_folder_name(3); }

  /// The names that begin so.
  std::vector<std::string> names(const std::string& prefix) const {
    std::vector<std::string> found;
    for (const auto& [name, state] : saved)
      if (name.starts_with(prefix)) found.push_back(name);
    return found;
  }
  void expect_added(const std::string& prefix) {
    EXPECT_FALSE(names(prefix).empty()) << prefix;
    for (const std::string& name : names(prefix)) {
      EXPECT_GT(saved.at(name).sum().norm().item<double>(), 0) << name;
      EXPECT_LT(distance(begun.at(name).sum(), saved.at(name).sum()), 1e-6) << name;
    }
  }
  void expect_averaged(const std::string& prefix) {
    EXPECT_FALSE(names(prefix).empty()) << prefix;
    for (const std::string& name : names(prefix))
      for (const auto& [rank, tensor] : begun.at(name).ranks)
        EXPECT_LT(distance(tensor, saved.at(name).mean()), 1e-6) << name << " of rank " << rank;
  }
  /// What was said of state that other ranks had, without the folder.
  std::vector<std::string> notes() const {
    std::vector<std::string> found;
    for (const std::string& line : second->said)
      if (line.starts_with(from() + ": ")) found.push_back(line.substr(from().size() + 2));
    return found;
  }

  const Folders f;
  const std::unique_ptr<Seen> first, second;
  RankState saved, begun;
};

using Lines = std::vector<std::string>;
const std::pair<int, int> kRanks[] = {{2, 4}, {4, 2}};

std::string averaged(const std::string& kind, int ranks) {
  return fmt::format("{} of {} ranks is averaged: each rank begins with the mean", kind, ranks);
}
std::string added(const std::string& kind, int ranks) {
  return fmt::format("{} of {} ranks is added up over the ranks of this run", kind, ranks);
}

}  // namespace

TEST(train_resume_rank_state, what_was_not_sent_is_added_up_over_other_ranks) {
  for (const auto& [before, after] : kRanks) {
    GoneOn run(before, after, {"compression.type=int8", "compression.start_step=0"});
    EXPECT_EQ(run.names("hook.error.").size(), run.saved.size());
    run.expect_added("hook.error.");
    EXPECT_EQ(run.notes(), Lines{added("hook.error", before)});
  }
}

TEST(train_resume_rank_state, ranks_that_step_apart_begin_with_the_mean_of_others) {
  for (const auto& [before, after] : kRanks) {
    GoneOn run(before, after, {"averaging.type=local_sgd", "averaging.period=100"});
    EXPECT_EQ(run.names("own.").size() + run.names("optim.").size(), run.saved.size());
    run.expect_averaged("own.");
    run.expect_averaged("optim.");
    EXPECT_EQ(run.notes(),
              (Lines{averaged("optim.exp_avg", before), averaged("optim.exp_avg_sq", before),
                     averaged("own.body", before), averaged("own.head", before),
                     averaged("own.neck", before)}));
  }
}

TEST(train_resume_rank_state, ranks_that_step_apart_and_compress_follow_both_rules) {
  for (const auto& [before, after] : kRanks) {
    GoneOn run(before, after,
               {"averaging.type=diloco", "averaging.period=2", "averaging.compression=int8"});
    run.expect_added("hook.error.");
    run.expect_averaged("own.");
    run.expect_averaged("optim.");
    EXPECT_EQ(run.notes(),
              (Lines{added("hook.error", before), averaged("optim.exp_avg", before),
                     averaged("optim.exp_avg_sq", before), averaged("own.body", before),
                     averaged("own.head", before), averaged("own.neck", before)}));
  }
}

}  // namespace resume_rank_state_test
