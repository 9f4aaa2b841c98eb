// SPDX-License-Identifier: Apache-2.0
// A head that is tied to the embedding where the first and the last stage are on one rank (a V):
// the last stage has a copy, which stays equal and shows nowhere.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "trireme/base/check.h"
#include "trireme/models/gpt_stages.h"
#include "trireme/train/evaluate.h"
#include "trireme/train/saving.h"
#include "trireme/train/trainer.h"

namespace tied_stages_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

const std::string kCopy = std::string(kCopyOfEmbedding) + ".weight";

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Config tied(const std::string& corpus, const Sets& more) {
  return tiny_gpt(corpus, Sets{"train_batch_size=16", "train_micro_batch_size_per_gpu=2",
                               "model.layers=4", "model.tied_head=true"} +
                              more);
}

Sets layout(const std::string& schedule, int stage, int pp = 2) {
  return {"parallelism.schedule=" + schedule, "parallelism.pp=" + std::to_string(pp),
          "zero_optimization.stage=" + std::to_string(stage)};
}

struct Ended {
  std::map<std::string, at::Tensor> weights;  // of all ranks together
  std::vector<double> losses, norms;
  double held_out = 0;
  int64_t parameters = 0;
};

Ended train_to(int64_t steps, int ranks, const Config& config, const std::string& from = "",
               const std::string& to = "") {
  Ended ended;
  std::mutex mutex;
  run_threads(
      ranks,
      [&](Group g) {
        trireme::Run run = build_run(config, g);
        if (!from.empty()) load_run(run, from);
        start_data(run, config);
        std::vector<double> losses, norms;
        while (run.step < steps) {
          const StepReport r = train_step(run);
          losses.push_back(r.loss), norms.push_back(r.grad_norm);
        }
        const double held_out = from.empty() && to.empty() ? evaluate(run).loss : 0;
        if (!to.empty()) save_run(run, to, 1);
        // Ranks of tensor parallelism have other parts under one name.
        const NamedTensors mine = run.mesh.size("tp") == 1 ? weights_of(run) : NamedTensors();
        std::lock_guard lock(mutex);
        for (const auto& [name, w] : mine) {
          const auto [at, is_new] = ended.weights.emplace(name, w);
          EXPECT_TRUE(is_new || at->second.equal(w)) << name << " differs between ranks";
        }
        if (g.rank() == 0) ended.losses = losses, ended.norms = norms, ended.held_out = held_out;
        ended.parameters = run.parameters;
      },
      std::chrono::seconds(60));
  return ended;
}

int ranks_of(int stage) { return stage == 0 ? 2 : 4; }

}  // namespace

TEST(train_tied_stages, the_copy_is_equal_after_every_kind_of_step) {
  const Folders folders;
  for (const Sets& optimizer :
       {Sets{"optimizer.type=SGD", "optimizer.params.lr=0.5", "optimizer.params.momentum=0.9"},
        Sets{"optimizer.type=AdamW", R"(optimizer.params.no_decay=["wte.weight"])"},
        Sets{"optimizer.type=AdamW", R"(optimizer.params.no_decay=["wte_of*"])"},
        Sets{"optimizer.type=Lamb", R"(optimizer.params.no_adapt=["wte.*"])"},
        Sets{"optimizer.type=Lamb"}, Sets{"optimizer.type=Lars"}})
    for (int stage : {0, 1, 2, 3}) {
      const auto ended =
          train_to(3, ranks_of(stage), tied(folders.corpus, layout("zb_v", stage) + optimizer));
      ASSERT_EQ(ended.weights.count(kCopy), 1u);
      EXPECT_TRUE(ended.weights.at(kCopy).equal(ended.weights.at("wte.weight")))
          << optimizer.back() << ", stage " << stage;
    }
}

// What another order of the same stages gives, and so one process, up to rounding.
TEST(train_tied_stages, the_bits_are_those_of_ends_on_different_ranks) {
  const Folders folders;
  for (const std::string optimizer : {"AdamW", "Lamb"}) {
    const Sets same = {"training.reproducible=true", "training.leaves=8",
                       "optimizer.type=" + optimizer,
                       R"(optimizer.params.no_decay=["wte.weight"])"};
    const Ended want = train_to(3, 2, tied(folders.corpus, layout("1f1b", 0) + same));
    EXPECT_EQ(want.weights.count(kCopy), 0u);
    for (const std::string schedule : {"zb_v", "dualpipe_v"})
      for (int stage : {0, 1, 2, 3}) {
        const std::string what = fmt::format("{} {} {}", optimizer, schedule, stage);
        Ended got =
            train_to(3, ranks_of(stage), tied(folders.corpus, layout(schedule, stage) + same));
        EXPECT_EQ(got.weights.erase(kCopy), 1u);
        EXPECT_EQ(first_difference({got.weights.begin(), got.weights.end()},
                                   {want.weights.begin(), want.weights.end()}),
                  "")
            << what;
        EXPECT_EQ(got.losses, want.losses) << what;
        EXPECT_EQ(got.norms, want.norms) << what;
        EXPECT_EQ(got.held_out, want.held_out) << what;
        EXPECT_EQ(got.parameters, want.parameters) << what;
      }
  }
}

TEST(train_tied_stages, parts_of_layers_have_a_copy_each) {
  const Folders folders;
  const Sets both = {"parallelism.tp=2", "parallelism.sequence_parallel=true",
                     "training.check_replicas=1"};
  const Ended want = train_to(3, 4, tied(folders.corpus, layout("1f1b", 0) + both));
  for (int stage : {0, 2, 3}) {
    const Ended got =
        train_to(3, 2 * ranks_of(stage), tied(folders.corpus, layout("zb_v", stage) + both));
    EXPECT_EQ(got.parameters, want.parameters);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(got.losses[i], want.losses[i], 1e-4 * want.losses[i]) << stage;
      EXPECT_NEAR(got.norms[i], want.norms[i], 1e-3 * want.norms[i]) << stage;
    }
  }
}

TEST(train_tied_stages, a_checkpoint_has_the_parameter_once_and_goes_on_with_both) {
  const Folders folders;
  const auto config = [&](const std::string& schedule, int stage) {
    return tied(folders.corpus,
                layout(schedule, stage) + Sets{"training.reproducible=true", "training.leaves=8",
                                               "optimizer.type=AdamW"});
  };
  for (int stage : {0, 1, 3}) {
    const std::string half = folders.run("half" + std::to_string(stage));
    const int ranks = ranks_of(stage);
    train_to(2, ranks, config("zb_v", stage), "", half);
    const std::string index = read_file(find_checkpoint(half) + "/trireme.index.json");
    EXPECT_TRUE(has(index, "optim.exp_avg.wte.weight"));
    EXPECT_FALSE(has(index, kCopyOfEmbedding)) << index;
    Ended want = train_to(4, ranks, config("zb_v", stage));
    want.weights.erase(kCopy);
    for (const std::string schedule : {"zb_v", "1f1b", "dualpipe_v"})
      for (int to : {0, stage}) {
        Ended got = train_to(4, ranks_of(to), config(schedule, to), half);
        if (schedule != "1f1b") {
          EXPECT_TRUE(got.weights.at(kCopy).equal(got.weights.at("wte.weight")));
        }
        got.weights.erase(kCopy);
        EXPECT_EQ(first_difference({got.weights.begin(), got.weights.end()},
                                   {want.weights.begin(), want.weights.end()}),
                  "")
            << "stage " << stage << " to " << schedule << " " << to;
      }
    // What ranks with the ends apart wrote.
    const std::string other = folders.run("other" + std::to_string(stage));
    train_to(2, ranks, config("1f1b", stage), "", other);
    Ended got = train_to(4, ranks, config("zb_v", stage), other);
    EXPECT_TRUE(got.weights.at(kCopy).equal(got.weights.at("wte.weight")));
    got.weights.erase(kCopy);
    EXPECT_EQ(first_difference({got.weights.begin(), got.weights.end()},
                               {want.weights.begin(), want.weights.end()}),
              "");
  }
}

TEST(train_tied_stages, a_run_in_another_precision_goes_on_with_both) {
  const Folders folders;
  const Sets half = {"bf16.enabled=true"};
  int runs = 0;
  for (const auto& [from, to] : {std::pair{half, Sets{}}, {Sets{}, half}, {half, half}}) {
    const std::string saved = folders.run("saved" + std::to_string(runs++));
    train_to(1, 2, tied(folders.corpus, layout("zb_v", 0) + from), "", saved);
    const Ended got = train_to(2, 4, tied(folders.corpus, layout("zb_v", 2) + to), saved);
    EXPECT_TRUE(got.weights.at(kCopy).equal(got.weights.at("wte.weight")));
  }
}

TEST(train_tied_stages, a_checkpoint_of_an_untied_head_is_refused_as_elsewhere) {
  const Folders folders;
  const std::string saved = folders.run("untied");
  train_to(1, 2, tied(folders.corpus, layout("zb_v", 0) + Sets{"model.tied_head=false"}), "",
           saved);
  for (const std::string schedule : {"1f1b", "zb_v"})
    EXPECT_TRUE(
        has(refusal([&] { train_to(2, 2, tied(folders.corpus, layout(schedule, 0)), saved); }),
            "holds tensor 'model.head.weight', which this state does not know"))
        << schedule;
}

TEST(train_tied_stages, weights_to_begin_with_come_to_both_or_to_none) {
  const Folders folders;
  const std::string first = folders.run("first");
  const auto train_in = [&](const std::string& run, const Sets& more) {
    const Config config = tied(folders.corpus, layout("zb_v", 0) + Sets{"training.steps=1"} + more);
    TrainOptions options;
    options.run_dir = folders.run(run);
    run_threads(
        2, [&](Group g) { train(config, g, options); }, std::chrono::seconds(60));
    return load_model(tied(folders.corpus, {}), options.run_dir)->named_parameters()["wte.weight"];
  };
  const Sets still = {"optimizer.params.lr=1e-30", "optimizer.params.weight_decay=0"};
  const at::Tensor trained = train_in("first", {}), fresh = train_in("fresh", still);
  const Sets init = still + Sets{"checkpoint.init=" + first, "training.check_replicas=1"};
  EXPECT_FALSE(trained.equal(fresh));
  EXPECT_TRUE(train_in("second", init).equal(trained));
  // A checkpoint that has the embedding under no name of this model.
  const Sets moved = init + Sets{R"(checkpoint.init_map=["wte.=elsewhere."])"};
  for (const std::string name : {"wte.weight", "model.wte.weight"})
    EXPECT_TRUE(train_in("without " + name,
                         moved + Sets{R"(checkpoint.init_except=["elsewhere.*", ")" + name + "\"]"})
                    .equal(fresh))
        << name;
}

TEST(train_tied_stages, a_copy_that_has_become_another_is_noticed) {
  const Folders folders;
  std::vector<std::string> said(2);
  try {
    run_threads(
        2,
        [&](Group g) {
          const Config config =
              tied(folders.corpus, layout("zb_v", 0) + Sets{"training.check_replicas=1"});
          trireme::Run run = build_run(config, g);
          start_data(run, config);
          try {
            train_step(run);
            at::NoGradGuard no_grad;
            for (const auto& [name, p] : run.gradients->parameters())
              if (name == kCopy) p.view({-1})[7] += 1;
            train_step(run);
          } catch (const NumericError& e) {
            said[static_cast<size_t>(g.rank())] = e.what();
            throw;
          }
        },
        std::chrono::seconds(60));
  } catch (const NumericError&) {
  }
  for (const std::string& text : said)
    EXPECT_TRUE(has(text,
                    "parameter 'wte.weight' should be equal in two stages of rank 0, and "
                    "differs after step 2 (training.check_replicas)"))
        << text;
}

TEST(train_tied_stages, a_gradient_of_the_copy_that_is_no_number_is_the_parameters) {
  const Folders folders;
  std::vector<std::string> said(2);
  try {
    run_threads(
        2,
        [&](Group g) {
          const Config config = tied(folders.corpus, layout("zb_v", 0));
          trireme::Run run = build_run(config, g);
          start_data(run, config);
          for (const auto& [name, p] : run.gradients->parameters())
            if (name == kCopy)
              p.register_hook([](at::Tensor grad) {
                return grad.mul(std::numeric_limits<double>::quiet_NaN());
              });
          try {
            train_step(run);
          } catch (const NumericError& e) {
            said[static_cast<size_t>(g.rank())] = e.what();
            throw;
          }
        },
        std::chrono::seconds(60));
  } catch (const NumericError&) {
  }
  for (const std::string& text : said)
    EXPECT_TRUE(has(text, "'wte.weight' on rank 0 is not finite in step 1")) << text;
}

}  // namespace tied_stages_test
