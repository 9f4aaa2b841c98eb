// SPDX-License-Identifier: Apache-2.0
// What ranks of a divided model must agree on: losses, norms, stop requests, what is not finite,
// what differs though it should not, and the end of one of them.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "trireme/base/check.h"
#include "trireme/train/evaluate.h"

namespace model_axes_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Config divided(const std::string& corpus, const Sets& more) {
  Sets sets = {"train_micro_batch_size_per_gpu=2", "model.layers=4", "train_batch_size=16",
               "model.tied_head=false"};
  sets.insert(sets.end(), more.begin(), more.end());
  return tiny_gpt(corpus, sets);
}

struct Started {
  Started(const Config& config, Group g) : run(build_run(config, g)) { start_data(run, config); }
  trireme::Run run;
  /// The parameter's handle where this rank has it.
  at::Tensor find(const std::string& name) const {
    for (const auto& [n, p] : run.gradients->parameters())
      if (n == name) return p;
    return {};
  }
};

/// Runs one body on threads; each rank's error, as "Kind: text", "" where there was none.
std::vector<std::string> said_by(int ranks, const std::function<void(Group)>& body) {
  std::vector<std::string> said(static_cast<size_t>(ranks));
  try {
    run_threads(
        ranks,
        [&](Group g) {
          try {
            body(g);
          } catch (const Error& e) {
            said[static_cast<size_t>(g.rank())] = std::string(e.kind()) + ": " + e.what();
            throw;
          }
        },
        std::chrono::seconds(60));
  } catch (const std::exception&) {
  }
  return said;
}

const Sets kTensor = {"parallelism.tp=2"}, kPipeline = {"parallelism.pp=2"},
           kAll = {"parallelism.tp=2", "parallelism.pp=2", "parallelism.sequence_parallel=true",
                   "zero_optimization.stage=2"},
           kContext = {"parallelism.cp=2"},
           kDividedRows = {"parallelism.cp=2", "parallelism.tp=2", "zero_optimization.stage=3"};

TEST(train_model_axes, all_ranks_report_the_same_loss_norm_and_weight) {
  const Folders folders;
  for (const auto& [sets, ranks] :
       {std::pair{kTensor, 2}, {kPipeline, 2}, {kAll, 8}, {kContext, 2}, {kDividedRows, 8}}) {
    std::vector<StepReport> reports(static_cast<size_t>(ranks));
    run_threads(ranks, [&, sets = sets](Group g) {
      Started s(divided(folders.corpus, sets), g);
      train_step(s.run);
      reports[static_cast<size_t>(g.rank())] = train_step(s.run);
    });
    for (const StepReport& r : reports) {
      EXPECT_EQ(r.loss, reports[0].loss);
      EXPECT_EQ(r.grad_norm, reports[0].grad_norm);
      EXPECT_EQ(r.weight, 16 * 16);
      EXPECT_GT(r.loss, 1);
    }
  }
}

TEST(train_model_axes, a_rank_that_is_asked_to_stop_stops_all_of_them) {
  const Folders folders;
  for (int asked = 0; asked < 8; ++asked)
    run_threads(8, [&](Group g) {
      Started s(divided(folders.corpus, asked % 2 == 0 ? kAll : kDividedRows), g);
      EXPECT_EQ(train_step(s.run, g.rank() == asked ? 2 : 0).stop, 2) << "rank " << g.rank();
      EXPECT_EQ(train_step(s.run).stop, 0);
    });
}

TEST(train_model_axes, a_gradient_that_is_no_number_names_its_parameter_and_rank_on_all) {
  const Folders folders;
  struct Case {
    Sets sets;
    int ranks, at;
    std::string parameter;
  };
  // Rank 5 of pp 2 × dp 2 × tp 2 is of the last stage, replica 0, part 1.
  for (const Case& c :
       {Case{kTensor, 2, 1, "blocks.2.mlp.up.weight"}, Case{kTensor, 2, 1, "ln_f.weight"},
        Case{kPipeline, 2, 1, "head.weight"}, Case{kPipeline, 2, 0, "wte.weight"},
        Case{kAll, 8, 5, "blocks.3.attn.proj.weight"},
        Case{kContext, 2, 1, "blocks.1.attn.qkv.weight"}}) {
    const auto said = said_by(c.ranks, [&](Group g) {
      Started s(divided(folders.corpus, c.sets), g);
      if (g.rank() == c.at)
        s.find(c.parameter).register_hook([](at::Tensor grad) { return grad.mul(kNaN); });
      train_step(s.run);
    });
    for (const std::string& text : said)
      EXPECT_TRUE(
          has(text, fmt::format("'{}' on rank {} is not finite in step 1", c.parameter, c.at)))
          << text;
  }
}

TEST(train_model_axes, a_loss_that_is_no_number_is_of_the_rank_that_computed_it) {
  const Folders folders;
  const auto said = said_by(8, [&](Group g) {
    Started s(divided(folders.corpus, kAll), g);
    at::NoGradGuard no_grad;
    // Both parts of replica 1's head.
    if (g.rank() == 6 || g.rank() == 7) s.find("head.weight").fill_(kNaN);
    at::AutoGradMode grad(true);
    train_step(s.run);
  });
  for (const std::string& text : said) EXPECT_TRUE(has(text, "the loss of rank 6 is nan")) << text;
}

// fp16's way on numbers of float32: the factors are powers of two, so nothing is rounded by them.
TEST(train_model_axes, a_step_that_overflows_on_one_rank_is_skipped_by_all_of_a_mesh) {
  const Folders folders;
  struct Trained {
    std::vector<double> losses;
    std::vector<double> scales;
    int64_t skipped = 0;
  };
  const auto train = [&](const Sets& sets, int ranks, int at) {
    std::vector<Trained> all(static_cast<size_t>(ranks));
    run_threads(ranks, [&](Group g) {
      Started s(divided(folders.corpus, sets), g);
      s.run.scaling = grad_scaler_scaling({.initial = 1024, .hysteresis = 1}, s.run.world(), 256);
      Trained& mine = all[static_cast<size_t>(g.rank())];
      int64_t step = 0;
      if (g.rank() == at)
        s.find("blocks.3.mlp.up.weight").register_hook([&step](at::Tensor grad) {
          return step == 1 ? grad.mul(std::numeric_limits<double>::infinity()) : grad;
        });
      for (; step < 4; ++step) {
        const double before =
            s.run.gradients->parameters().back().second.abs().sum().item<double>();
        mine.losses.push_back(train_step(s.run).loss);
        mine.scales.push_back(s.run.scaling->loss_scale());
        const double after = s.run.gradients->parameters().back().second.abs().sum().item<double>();
        EXPECT_EQ(before == after, step == 1) << "rank " << g.rank() << ", step " << step;
      }
      mine.skipped = s.run.scaling->skipped();
    });
    return all;
  };
  const Trained want = train({}, 1, 0)[0];
  EXPECT_EQ(want.scales, (std::vector<double>{1024, 512, 512, 512}));
  const Sets both = {"parallelism.tp=2", "parallelism.pp=2"},
             all = {"parallelism.tp=2", "parallelism.pp=2", "parallelism.sequence_parallel=true"};
  // Rank 5 of pp 2 × dp 2 × tp 2 is of the last stage, replica 0, part 1.
  for (const auto& [sets, ranks, at] :
       {std::tuple{kTensor, 2, 1}, {kPipeline, 2, 1}, {both, 4, 3}, {all, 8, 5}})
    for (const Trained& rank : train(sets, ranks, at)) {
      EXPECT_EQ(rank.skipped, 1);
      EXPECT_EQ(rank.scales, want.scales);
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(rank.losses[i], want.losses[i], 1e-4) << i;
    }
}

TEST(train_model_axes, an_exception_on_one_rank_is_told_on_all) {
  const Folders folders;
  for (const auto& [sets, ranks] :
       {std::pair{kTensor, 2}, {kPipeline, 2}, {kAll, 8}, {kContext, 4}})
    for (int at : {0, ranks - 1}) {
      const auto said = said_by(ranks, [&, sets = sets, at = at](Group g) {
        Started s(divided(folders.corpus, sets), g);
        train_step(s.run);
        if (g.rank() == at)
          s.run.gradients->parameters().front().second.register_hook(
              [](at::Tensor) -> at::Tensor { throw std::runtime_error("the pump is broken"); });
        train_step(s.run);
      });
      for (int r = 0; r < ranks; ++r)
        EXPECT_TRUE(r == at || has(said[static_cast<size_t>(r)], "the pump is broken"))
            << "rank " << r << ": " << said[static_cast<size_t>(r)];
    }
}

TEST(train_model_axes, what_replicas_should_hold_alike_is_compared_every_so_many_steps) {
  const Folders folders;
  struct Case {
    Sets sets;
    int ranks;
    std::set<int> at;
    std::string parameter, says;
  };
  for (const Case& c :
       {Case{{},
             2,
             {1},
             "blocks.1.ln2.bias",
             "axis dp_replicate, and differs between ranks 0 and 1"},
        Case{kTensor, 2, {1}, "wpe.weight", "axis tp, and differs between ranks 0 and 1"},
        Case{{"parallelism.pp=2", "model.tied_head=true"}, 2, {1}, "wte.weight", "axis pp"},
        Case{kContext, 2, {1}, "ln_f.weight", "axis cp, and differs between ranks 0 and 1"},
        Case{kAll, 8, {1, 3}, "wpe.weight", "axis tp, and differs between ranks 0 and 1"}}) {
    Sets sets = c.sets;
    sets.push_back("training.check_replicas=2");
    const auto said = said_by(c.ranks, [&](Group g) {
      Started s(divided(folders.corpus, sets), g);
      train_step(s.run);
      train_step(s.run);  // compared: equal
      train_step(s.run);
      {
        at::NoGradGuard no_grad;
        if (c.at.count(g.rank())) s.find(c.parameter).view({-1})[3] += 1;
      }
      EXPECT_EQ(s.run.step, 3);
      train_step(s.run);
      ADD_FAILURE() << "rank " << g.rank() << " saw no difference in " << c.parameter;
    });
    for (const std::string& text : said) {
      EXPECT_TRUE(has(text, "NumericError: parameter '" + c.parameter + "'")) << text;
      EXPECT_TRUE(has(text, c.says)) << text;
      EXPECT_TRUE(has(text, "after step 4")) << text;
    }
  }
}

// Parts of a head are no replicas of each other.
TEST(train_model_axes, replicas_that_are_alike_train_on) {
  const Folders folders;
  for (const Sets& more : {Sets{"zero_optimization.stage=3", "parallelism.tp=2"},
                           Sets{"zero_optimization.stage=3"}, kAll, kDividedRows}) {
    Sets sets = more;
    sets.push_back("training.check_replicas=1");
    run_threads(8, [&](Group g) {
      Started s(divided(folders.corpus, sets), g);
      for (int i = 0; i < 3; ++i) train_step(s.run);
    });
  }
}

TEST(train_model_axes, evaluation_is_that_of_one_process) {
  const Folders folders;
  const auto evaluation = [&](int ranks, const Sets& sets) {
    Evaluation result;
    run_threads(ranks, [&](Group g) {
      Started s(divided(folders.corpus, sets), g);
      const Evaluation here = evaluate(s.run);
      if (g.rank() == ranks - 1) result = here;
      EXPECT_GT(here.weight, 0);
    });
    return result;
  };
  const Evaluation want = evaluation(1, {});
  for (const auto& [sets, ranks] : {std::pair{kTensor, 2},
                                    {kPipeline, 2},
                                    {kAll, 8},
                                    {kContext, 4},
                                    {kDividedRows, 4},
                                    {Sets{"parallelism.pp=2", "parallelism.schedule=zb_v"}, 4}}) {
    const Evaluation got = evaluation(ranks, sets);
    EXPECT_NEAR(got.loss, want.loss, 1e-5 * want.loss);
    EXPECT_NEAR(got.accuracy, want.accuracy, 2e-3);
    EXPECT_EQ(got.weight, want.weight);
  }
}

}  // namespace
}  // namespace model_axes_test
