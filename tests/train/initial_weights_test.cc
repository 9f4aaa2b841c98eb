// SPDX-License-Identifier: Apache-2.0
// checkpoint.init: a new run that begins with the weights of another.
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <map>

#include "tests/interop/weight_files.h"
#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "tests/train/wholes.h"
#include "trireme/checkpoint/load_weights.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/build/run_parts.h"
#include "trireme/train/trainer.h"

namespace initial_weights_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

void run_on(int ranks, const Config& config, const std::string& run_dir,
            std::optional<std::string> resume = {}) {
  TrainOptions options;
  options.run_dir = run_dir;
  options.resume = std::move(resume);
  run_threads(
      ranks, [&](Group g) { train(config, g, options); }, std::chrono::seconds(60));
}

/// A step that changes nothing.
Config still(Sets sets) {
  sets.insert(sets.begin(),
              {"training.steps=1", "optimizer.params.lr=1e-30", "optimizer.params.weight_decay=0"});
  return digits("mlp", sets);
}

NamedTensors weights_of(const Config& config, const std::string& run_dir) {
  return named_parameters(*load_model(config, run_dir));
}

void expect_weights(const NamedTensors& got, const NamedTensors& want, double tolerance,
                    const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LE((got[i].second - want[i].second).abs().max().item<double>(), tolerance)
        << what << ": " << got[i].first;
}

/// What a run begins with, of all ranks together.
std::map<std::string, at::Tensor> begun(int ranks, const Config& config) {
  Wholes wholes;
  run_threads(
      ranks,
      [&](Group g) {
        RunParts parts = built_in_parts(config);
        parts.init = true;
        const trireme::Run run = build_run(config, g, parts);
        wholes.add(trireme::testing::weights_of(run), run.layouts);
      },
      std::chrono::seconds(60));
  std::map<std::string, at::Tensor> all;
  for (const auto& [name, w] : wholes.all()) all.emplace(name, w);
  return all;
}

void expect_same(const std::map<std::string, at::Tensor>& got,
                 const std::map<std::string, at::Tensor>& want, const std::string& what) {
  ASSERT_GE(got.size(), want.size()) << what;  // a tied head has a copy in some pipelines
  for (const auto& [name, w] : want) {
    ASSERT_EQ(got.count(name), 1u) << what << ": " << name;
    EXPECT_TRUE(got.at(name).equal(w)) << what << ": " << name;
  }
}

}  // namespace

TEST(train_initial_weights, ranks_that_divide_the_model_begin_as_one_that_has_all_of_it) {
  Folders f;
  const auto gpt = [&](Sets sets) {
    sets.insert(sets.begin(), {"train_micro_batch_size_per_gpu=2", "model.layers=4",
                               "training.steps=2", "model.vocab=256"});
    return tiny_gpt(f.corpus, sets);
  };
  for (const std::string tied : {"model.tied_head=false", "model.tied_head=true"}) {
    // A step of an undivided run, and its parameters in a file as others write them.
    const std::string first = f.run("first " + tied), file = f.folder / (tied + ".safetensors");
    run_on(2, gpt({tied}), first);
    std::vector<interop::testing::Floats> tensors;
    for (const auto& [name, p] : named_parameters(*build_model(gpt({tied}))))
      tensors.push_back(
          {name, p.sizes().vec(), static_cast<float>(tensors.size()), 1 / 1024.0f / 1024.0f});
    interop::testing::write_bytes(file, interop::testing::safetensors_text(tensors));
    for (const std::string& from : {first, file}) {
      const std::string init = "checkpoint.init=" + from;
      const auto want = begun(1, gpt({tied, init}));
      ASSERT_FALSE(want.at("blocks.3.mlp.up.weight")
                       .equal(begun(1, gpt({tied})).at("blocks.3.mlp.up.weight")));
      for (const auto& [ranks, sets] : std::vector<std::pair<int, Sets>>{
               {2, {"parallelism.tp=2"}},
               {2, {"parallelism.pp=2"}},
               {4, {"parallelism.tp=2"}},
               {4,
                {"parallelism.tp=2", "parallelism.sequence_parallel=true",
                 "zero_optimization.stage=2"}},
               {4, {"parallelism.tp=2", "zero_optimization.stage=3"}},
               {4, {"parallelism.tp=2", "parallelism.pp=2"}},
               {4, {"parallelism.pp=2", "parallelism.schedule=zb_v", "zero_optimization.stage=3"}},
               {8, {"parallelism.tp=2", "parallelism.pp=2", "zero_optimization.stage=1"}}}) {
        Sets all = sets;
        all.insert(all.end(), {tied, init});
        expect_same(begun(ranks, gpt(all)), want,
                    fmt::format("{} on {}, {}, {}", fmt::join(sets, " "), ranks, tied, from));
      }
    }
  }
}

TEST(train_initial_weights, what_divided_ranks_cannot_take_is_said_by_all_in_one_sentence) {
  Folders f;
  const auto gpt = [&](Sets sets) {
    sets.insert(sets.begin(), {"train_micro_batch_size_per_gpu=2", "training.steps=2"});
    return tiny_gpt(f.corpus, sets);
  };
  run_on(1, gpt({}), f.run("first"));
  const std::string init = "checkpoint.init=" + f.run("first");
  for (const std::string axis : {"parallelism.tp=2", "parallelism.pp=2"}) {
    const auto refused = [&](Sets sets) {
      sets.insert(sets.end(), {axis, init});
      return refusal([&] { begun(2, gpt(sets)); });
    };
    EXPECT_TRUE(has(refused({"model.width=48"}), "checkpoint.init: ")) << axis;
    EXPECT_TRUE(has(refused({"model.width=48"}), "wte.weight")) << refused({"model.width=48"});
    EXPECT_TRUE(has(refused({"model.layers=4"}), "'model.blocks.2."))
        << refused({"model.layers=4"});
    // What is over is of no rank.
    EXPECT_TRUE(has(refused({R"(checkpoint.init_map=["blocks.1=blocks.7"])"}), "blocks.")) << axis;
    EXPECT_EQ(refused({R"(checkpoint.init_map=["blocks.1=blocks.7"])",
                       R"(checkpoint.init_except=["blocks.1.*", "blocks.7.*"])"}),
              "");
  }
}

TEST(train_initial_weights, a_new_run_begins_with_them_in_every_layout) {
  Folders f;
  const Config first = digits("mlp", {"training.steps=3"});
  run_on(2, first, f.run("first"));
  const NamedTensors want = weights_of(first, f.run("first"));
  for (const std::string stage : {"0", "1", "2", "3"})
    for (const int ranks : {1, 2}) {
      const std::string name = "stage " + stage + " on " + std::to_string(ranks);
      const Config config =
          still({"zero_optimization.stage=" + stage, "checkpoint.init=" + f.run("first")});
      run_on(ranks, config, f.run(name));
      expect_weights(weights_of(config, f.run(name)), want, 0, name);
    }
  for (const std::string sets : {"bf16.enabled=true", "averaging.type=diloco"}) {
    const Config config = still({sets, "checkpoint.init=" + f.run("first")});
    run_on(2, config, f.run(sets));
    expect_weights(weights_of(config, f.run(sets)), want, sets[0] == 'b' ? 1e-2 : 1e-6, sets);
  }
}

TEST(train_initial_weights, of_hugging_faces_gpt2_are_taken_in_every_layout) {
  Folders f;
  auto tensors = interop::testing::small_gpt2("transformer.", {32, 256, 16});
  for (auto& t : tensors) t.scale = 1e-4f;
  const std::string path = f.folder / "model.safetensors", pt = f.folder / "ddp.pt";
  interop::testing::write_bytes(path, interop::testing::safetensors_text(tensors));
  for (auto& t : tensors) t.name = "module." + t.name;
  interop::testing::write_pt(pt, tensors, {"state_dict"});
  const auto config_of = [&](Sets sets) {
    sets.insert(sets.begin(), {"training.steps=1", "optimizer.params.lr=1e-30",
                               "optimizer.params.weight_decay=0", "model.dropout=0"});
    return tiny_gpt(f.corpus, sets);
  };
  const auto model = build_model(config_of({}));
  const NamedTensors want = named_parameters(*model);
  load_weights(path, [&](StateVisitor& v) {
    for (const auto& [name, p] : want) v.tensor("model." + name, p.detach());
  });
  for (const std::string stage : {"0", "1", "2", "3"})
    for (const int ranks : {1, 2}) {
      const std::string name = "stage " + stage + " on " + std::to_string(ranks);
      const Config config = config_of(
          {"zero_optimization.stage=" + stage, "checkpoint.init=" + (ranks == 1 ? pt : path)});
      run_on(ranks, config, f.run(name));
      expect_weights(weights_of(config, f.run(name)), want, 1e-12, name);
    }
  // Its matrices lie transposed there, and ranks hold parts of them.
  const std::string micro = "train_micro_batch_size_per_gpu=2";
  for (const std::string& init : {"checkpoint.init=" + path, "checkpoint.init=" + pt}) {
    const auto one = begun(1, config_of({init}));
    for (const Sets& sets : {Sets{"parallelism.tp=2"}, Sets{"parallelism.pp=2"},
                             Sets{"parallelism.tp=2", "parallelism.pp=2"}}) {
      Sets all = sets;
      all.insert(all.end(), {init, micro});
      expect_same(begun(4, config_of(all)), one, fmt::format("{}", fmt::join(sets, " ")));
    }
  }
}

TEST(train_initial_weights, names_are_mapped_and_some_excepted) {
  Folders f;
  const Config plain = still({});
  NamedTensors saved = named_parameters(*build_model(plain));
  at::Tensor extra = torch::ones({2});
  const auto save_as = [&](const std::string& prefix, bool all) {
    for (auto& [name, p] : saved) p.detach().fill_(0.25);
    save_step(f.run("old"), 1, [&](StateVisitor& v) {
      for (size_t i = all ? 0 : 1; i < saved.size(); ++i)
        v.tensor("model." + prefix + saved[i].first, saved[i].second.detach());
      v.tensor("model.extra", extra);
    });
  };
  save_as("old.", false);
  const std::string init = "checkpoint.init=" + f.run("old");
  const auto refused = [&](Sets sets) {
    sets.push_back(init);
    return refusal([&] { run_on(2, still(sets), f.run("refused")); });
  };
  const std::string map = R"(checkpoint.init_map=["old.="])";
  EXPECT_TRUE(has(refused({}), "'model." + saved[0].first + "'")) << refused({});
  EXPECT_TRUE(has(refused({map}), "has no tensor 'model." + saved[0].first + "'"));
  const std::string first = R"(checkpoint.init_except=[")" + saved[0].first + R"("])",
                    both = R"(checkpoint.init_except=["extra", ")" + saved[0].first + R"("])";
  EXPECT_TRUE(has(refused({map, first}), "holds tensor 'model.extra', which"))
      << refused({map, first});

  const Config config = still({map, both, init});
  run_on(2, config, f.run("new"));
  const NamedTensors got = weights_of(config, f.run("new"));
  const NamedTensors born = named_parameters(*build_model(config));
  EXPECT_TRUE(torch::equal(got[0].second, born[0].second)) << "it keeps the values that it had";
  for (size_t i = 1; i < got.size(); ++i)
    EXPECT_TRUE(torch::equal(got[i].second, torch::full_like(got[i].second, 0.25)));
}

TEST(train_initial_weights, what_says_how_they_are_read_without_any_is_refused) {
  Folders f;
  const std::string text =
      refusal([&] { run_on(1, still({R"(checkpoint.init_map=["a=b"])"}), f.run("new")); });
  EXPECT_TRUE(has(text, "checkpoint.init_map says how checkpoint.init is read")) << text;
}

TEST(train_initial_weights, a_resumed_run_does_not_ask_for_them) {
  Folders f;
  run_on(1, digits("mlp", {"training.steps=2"}), f.run("first"));
  const std::string init = "checkpoint.init=" + f.run("first");
  run_on(1, digits("mlp", {"training.steps=2", init}), f.run("second"));
  std::filesystem::remove_all(f.run("first"));
  run_on(2, digits("mlp", {"training.steps=4", init}), f.run("second"), f.run("second"));
  EXPECT_EQ(list_steps(f.run("second")).back(), 4);
}

}  // namespace initial_weights_test
