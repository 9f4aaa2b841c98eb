// SPDX-License-Identifier: Apache-2.0
// A run that goes on in another precision: with masters, without, in another half type.
#include <gtest/gtest.h>

#include <map>

#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "tests/train/small_runs.h"
#include "trireme/train/saving.h"
#include "trireme/train/trainer.h"

namespace resume_precision_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

Config adam(const Sets& sets) {
  Sets all = {"optimizer.type=AdamW", "optimizer.params.momentum=null",
              "optimizer.params.lr=0.003"};
  all.insert(all.end(), sets.begin(), sets.end());
  return digits("mlp", all);
}

/// What a checkpoint of one rank without shards holds, by name.
struct Whole final : StateVisitor {
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override {
    all[slice.name] = local.detach().clone().view(slice.global_shape);
  }
  void value(const std::string&, int64_t&) override {}
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}
  std::map<std::string, at::Tensor> all;
};

std::map<std::string, at::Tensor> state_of_run(trireme::Run& run) {
  Whole whole;
  run.state(whole);
  return whole.all;
}

const Sets kFloat{}, kBf16{"bf16.enabled=true"},
    kBf16Alone{"amp.enabled=true", "amp.opt_level=O3", "amp.dtype=bf16"},
    kFp16{"fp16.enabled=true", "fp16.emulate=true"};

Sets with(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The most exact weights of a state, in float32.
std::map<std::string, at::Tensor> exact_weights(const std::map<std::string, at::Tensor>& state) {
  std::map<std::string, at::Tensor> all;
  for (const auto& [name, t] : state)
    if (name.starts_with("model.")) all[name.substr(6)] = t.to(at::kFloat);
  for (const auto& [name, t] : state)
    if (name.starts_with("optim.master.")) all[name.substr(13)] = t;
  return all;
}

}  // namespace

TEST(train_resume_precision, weights_masters_and_moments_are_those_that_were_saved) {
  struct Row {
    Sets saved, loaded;
    const char* what;
  };
  for (const Row& row :
       {Row{kFloat, kBf16, "float32 to bfloat16 with masters"},
        Row{kBf16, kFloat, "bfloat16 with masters to float32"},
        Row{kBf16, kFp16, "bfloat16 to float16"}, Row{kFp16, kBf16, "float16 to bfloat16"},
        Row{kFp16, kFloat, "float16 with a loss scale to float32"},
        Row{kFloat, kFp16, "float32 to float16 with a loss scale"},
        Row{kBf16, kBf16Alone, "masters are dropped"},
        Row{kBf16Alone, kBf16, "masters begin with the weights"},
        Row{kFloat, kBf16Alone, "float32 to bfloat16 alone"}})
    for (const char* stage : {"0", "2"}) {
      // ZeRO and Apex's presets exclude one another.
      const Sets zero{std::string("zero_optimization.stage=") + stage};
      if (*stage != '0' && (row.saved == kBf16Alone || row.loaded == kBf16Alone)) continue;
      PrivateFolder folder;
      std::map<std::string, at::Tensor> there;
      run_threads(2, [&](Group g) {
        const Config config = adam(with(row.saved, zero));
        trireme::Run run = build_run(config, g);
        start_data(run, config);
        for (int i = 0; i < 3; ++i) train_step(run);
        save_run(run, folder.path(), 2);
      });
      run_threads(1, [&](Group g) {  // as it was saved, on one rank
        trireme::Run run = build_run(adam(row.saved), g);
        load_run(run, folder.path());
        there = state_of_run(run);
      });
      std::map<std::string, at::Tensor> here;
      CheckpointInfo info;
      run_threads(1, [&](Group g) {
        trireme::Run run = build_run(adam(row.loaded), g);
        info = load_run(run, folder.path());
        EXPECT_EQ(run.step, 3) << row.what;
        here = state_of_run(run);
      });
      const auto exact = exact_weights(there);
      for (const auto& [name, t] : here) {
        if (name.starts_with("optim.master.")) {
          EXPECT_TRUE(t.equal(exact.at(name.substr(13)))) << row.what << ": " << name;
        } else if (name.starts_with("model.") && t.scalar_type() != there.at(name).scalar_type()) {
          EXPECT_TRUE(t.equal(exact.at(name.substr(6)).to(t.scalar_type())))
              << row.what << ": " << name;
        } else {
          EXPECT_TRUE(t.equal(there.at(name))) << row.what << ": " << name;
        }
      }
      const bool same = exact.empty() || row.saved == row.loaded ||
                        (row.saved != kFloat && row.loaded != kFloat &&
                         (row.saved == kFp16) == (row.loaded == kFp16));
      EXPECT_EQ(info.notes.empty(), same) << row.what;
      if (!same) {
        EXPECT_TRUE(has(info.notes[0], "are converted")) << info.notes[0];
        // Of the two runs one scales its loss, and says what becomes of that.
        const bool scale = (row.saved == kFp16) != (row.loaded == kFp16);
        ASSERT_EQ(info.notes.size(), scale ? 2u : 1u) << row.what;
        if (scale) {
          EXPECT_EQ(info.notes[1], row.loaded == kFp16
                                       ? "the loss scale begins anew: the run that saved had none"
                                       : "the loss scale that was saved is left out: this run has "
                                         "none");
        }
      }
    }
}

TEST(train_resume_precision, a_run_goes_on_training_in_it_and_says_so) {
  PrivateFolder folder;
  std::vector<std::string> said;
  auto train_in = [&](const Sets& sets, const std::string& steps, const std::string& from) {
    TrainResult result;
    run_threads(
        2,
        [&](Group g) {
          TrainOptions options;
          options.run_dir = folder / steps;
          if (!from.empty()) options.resume = folder / from;
          options.say = [&](const std::string& line) { said.push_back(line); };
          const TrainResult r = train(adam(with(sets, {"training.steps=" + steps})), g, options);
          if (g.rank() == 0) result = r;
        },
        std::chrono::seconds(60));
    return result.loss;
  };
  const double first = train_in(with(kFloat, {"zero_optimization.stage=1"}), "20", "");
  const double second = train_in(with(kBf16, {"zero_optimization.stage=3"}), "40", "20");
  const double third = train_in(kFloat, "60", "40");
  EXPECT_LT(second, first);
  EXPECT_LT(third, second);
  EXPECT_TRUE(std::any_of(said.begin(), said.end(), [](const std::string& line) {
    return has(line, "the weights (BF16 here, F32 there) are converted");
  }));
  EXPECT_TRUE(std::any_of(said.begin(), said.end(), [](const std::string& line) {
    return has(line, "the weights (F32 here, BF16 there with float32 masters) are converted");
  }));
}

// A program's own state is not the trainer's, whatever it is called.
TEST(train_resume_precision, state_that_is_no_weight_keeps_its_names_and_dtypes) {
  PrivateFolder folder;
  run_threads(1, [&](Group g) {
    at::Tensor weight = at::ones({4}), seen = at::ones({2}, at::kDouble);
    double mean = 3;
    const StateWalk saved = [&](StateVisitor& v) {
      v.tensor("model.w", weight);
      v.tensor("program.seen", seen);
      v.value("program.scaler.mean", mean);
    };
    save_state(g, folder.path(), 1, "replicated", saved, 2);
    auto refusal = [&](const StateWalk& walk) {
      try {
        load_state(folder.path(), walk, {});
      } catch (const UsageError& e) {
        return std::string(e.what());
      }
      return std::string("nothing");
    };
    at::Tensor single = at::zeros({2});
    const std::string dtype = refusal([&](StateVisitor& v) {
      v.tensor("model.w", weight);
      v.tensor("program.seen", single);
      v.value("program.scaler.mean", mean);
    });
    EXPECT_TRUE(has(dtype, "'program.seen' is F64 there")) << dtype;
    const std::string superfluous = refusal([&](StateVisitor& v) {
      v.tensor("model.w", weight);
      v.tensor("program.seen", seen);
    });
    EXPECT_TRUE(has(superfluous, "holds the value 'program.scaler.mean'")) << superfluous;
    const std::string missing = refusal([&](StateVisitor& v) {
      saved(v);
      v.value("program.scaler.spread", mean);
    });
    EXPECT_TRUE(has(missing, "has no value 'program.scaler.spread'")) << missing;
  });
}

}  // namespace resume_precision_test
