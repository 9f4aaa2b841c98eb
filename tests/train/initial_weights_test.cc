// SPDX-License-Identifier: Apache-2.0
// checkpoint.init: a new run that begins with the weights of another.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "tests/interop/weight_files.h"
#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "trireme/checkpoint/load_weights.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/tensor/tied_tensors.h"
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

}  // namespace

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
