// SPDX-License-Identifier: Apache-2.0
// trireme checkpoint export and import.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/interop/told.h"
#include "tests/interop/weight_files.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/refusals.h"

namespace trireme::testing::checkpoint_exchange_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace trireme::test;
using interop::testing::kFixtures;
using interop::testing::safetensors_text;
using interop::testing::small_gpt2;
using interop::testing::write_bytes;
using interop::testing::write_pt;

struct Answer {
  int code;
  std::string out, err;
};

Answer checkpoint(Arguments words) {
  words.insert(words.begin(), "checkpoint");
  Command command(trireme(words));
  const int code = command.finish();
  return {code, command.out, command.err};
}

std::string write_step(const std::string& run) {
  return write_test_step(run, 100,
                         {{"model.fc.weight", "F32", {3, 2}, counted(6)},
                          {"model.fc.bias", "F32", {3}, counted(3)},
                          {"optim.exp_avg.fc.weight", "F32", {3, 2}, counted(6, 0.5)}},
                         {{"train.step", int64_t{100}}, {"train.held_out_loss", 0.75}});
}

// PyTorch 1.13's weights_only knows no opcode of floats (71); 2.0 and later do.
constexpr const char* kLoad = R"(
import sys
try:
    import torch
except ImportError:
    sys.exit(77)
weights = torch.load(sys.argv[1], weights_only=True)
net = torch.nn.Sequential()
net.add_module("fc", torch.nn.Linear(2, 3))
net.load_state_dict(weights)
assert torch.equal(net.fc.weight, torch.arange(6.).view(3, 2)), net.fc.weight
try:
    state = torch.load(sys.argv[2], weights_only=True)
except Exception as refusal:
    assert torch.__version__.startswith("1.13") and "operand 71" in str(refusal), refusal
    state = torch.load(sys.argv[2])
net.load_state_dict(state["model"])
assert torch.equal(state["state"]["optim.exp_avg.fc.weight"], torch.arange(6.).view(3, 2) / 2)
assert state["values"] == {"train.step": 100, "train.held_out_loss": 0.75}
)";

TEST(cli_checkpoint_exchange, an_exported_pt_fills_a_module_of_python) {
  PrivateFolder run, out;
  write_step(run.path());
  auto answer = checkpoint({"export", run.path(), out / "w.pt"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(has(answer.out, "w.pt: 2 tensors, ")) << answer.out;
  answer = checkpoint({"export", run.path(), out / "state", "--format", "torch", "--state"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  Command python({"/usr/bin/python3", "-c", kLoad, out / "w.pt", out / "state"});
  const int status = python.finish(std::chrono::seconds(120));
  if (status == 77) GTEST_SKIP() << "python3-torch is not installed";
  EXPECT_EQ(status, 0) << python.err;
}

TEST(cli_checkpoint_exchange, a_gpt2_of_python_comes_back_to_the_bit) {
  PrivateFolder folder;
  const Arguments script{"/usr/bin/python3",
                         trireme::testing::source_path("/tests/interop/gpt2.py")};
  const auto python = [&](Arguments words) {
    words.insert(words.begin(), script.begin(), script.end());
    Command command(words);
    const int code = command.finish(std::chrono::seconds(120));
    EXPECT_TRUE(code == 0 || code == 77) << command.err;
    return code;
  };
  if (python({"make", folder.path()}) == 77) GTEST_SKIP() << "python3-torch is not installed";
  Arguments written{"compare", folder / "plain.pt"};
  for (const char* from : {"gpt2.pt", "plain.pt", "gpt2.safetensors"}) {
    const std::string run = folder / (std::string("run of ") + from);
    auto answer = checkpoint({"import", folder / from, run});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_TRUE(has(answer.out, "its names are those of GPT-2")) << answer.out;
    for (const char* size : {"1GB", "2KB"}) {
      const std::string hf = run + " as " + size;
      answer = checkpoint({"export", run, hf, "--names", "gpt2", "--heads", "2", "--max-shard-size",
                           size, "--json"});
      ASSERT_EQ(answer.code, 0) << answer.err;
      EXPECT_EQ(json::parse(answer.out)["files"].size() > 2, size[0] == '2');
      written.push_back(hf);
      const json config = json::parse(read_file(hf + "/config.json"));
      EXPECT_EQ(config["n_layer"], 2);
      EXPECT_EQ(config["n_embd"], 8);
      EXPECT_EQ(config["n_head"], 2);
      EXPECT_EQ(config["n_positions"], 6);
      EXPECT_EQ(config["vocab_size"], 11);
      EXPECT_EQ(config["tie_word_embeddings"], true);
    }
    answer = checkpoint({"export", run, run + ".pt", "--names", "gpt2"});
    ASSERT_EQ(answer.code, 0) << answer.err;
    written.push_back(run + ".pt");
  }
  EXPECT_EQ(python(written), 0);
}

TEST(cli_checkpoint_exchange, import_takes_folders_of_dcp_archives_and_maps_names) {
  PrivateFolder folder;
  auto answer = checkpoint({"import", kFixtures + "dcp", folder / "a", "--map", "fc.=head."});
  ASSERT_EQ(answer.code, 0) << answer.err;
  auto show = checkpoint({"show", folder / "a", "--json"});
  const json tensors = json::parse(show.out)["tensors"];
  EXPECT_TRUE(tensors.contains("model.head.weight") && tensors.contains("model.turned"));
  EXPECT_EQ(checkpoint({"verify", folder / "a"}).code, 0);
  answer = checkpoint({"import", kFixtures + "cpp_module.pt", folder / "b", "--json"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const json imported = json::parse(answer.out);
  EXPECT_EQ(imported["kind"], "an archive of LibTorch");
  EXPECT_EQ(imported["tensors"], 9);
  EXPECT_EQ(imported["step"], folder / "b/step-00000000");
  answer = checkpoint({"import", kFixtures + "dcp", folder / "a"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(has(answer.err, "has steps: import into a folder of its own, or --force"));
  EXPECT_EQ(checkpoint({"import", kFixtures + "dcp", folder / "a", "--force"}).code, 0);
  EXPECT_TRUE(has(checkpoint({"show", folder / "a"}).out, "model.fc.weight"));
}

TEST(cli_checkpoint_exchange, a_step_and_a_run_of_our_own_are_not_imported) {
  PrivateFolder folder;
  const std::string step = write_step(folder / "run");
  auto answer = checkpoint({"import", step, folder / "copy"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(has(answer.err, step + " is a step of Trireme already")) << answer.err;
  answer = checkpoint({"import", folder / "run", folder / "copy"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(has(answer.err, "is a run of Trireme already")) << answer.err;
  EXPECT_TRUE(has(answer.err, "checkpoint.init=" + (folder / "run"))) << answer.err;
  EXPECT_FALSE(fs::exists(folder / "copy"));
}

TEST(cli_checkpoint_exchange, a_wrapper_that_is_taken_off_all_names_is_told) {
  PrivateFolder folder;
  write_pt(folder / "x.pt", {{"module.a", {1}}, {"module.b", {1}}});
  const auto answer = checkpoint({"import", folder / "x.pt", folder / "run"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(has(answer.out, "'module.' is taken off all names")) << answer.out;
}

TEST(cli_checkpoint_exchange, names_of_gpt2_are_kept_where_that_is_asked) {
  PrivateFolder folder;
  write_bytes(folder / "x.safetensors", safetensors_text(small_gpt2()));
  ASSERT_EQ(checkpoint({"import", folder / "x.safetensors", folder / "a", "--names", "plain"}).code,
            0);
  EXPECT_TRUE(has(checkpoint({"show", folder / "a"}).out, "model.transformer.h.0.attn.c_attn"));
  const auto answer = checkpoint({"import", kFixtures + "dcp", folder / "b", "--names", "gpt2"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(has(answer.err, "its names are not those of GPT-2")) << answer.err;
  EXPECT_FALSE(fs::exists(folder / "b"));
}

TEST(cli_checkpoint_exchange, heads_come_from_the_runs_configuration) {
  PrivateFolder folder;
  write_bytes(folder / "x.safetensors", safetensors_text(small_gpt2()));
  ASSERT_EQ(checkpoint({"import", folder / "x.safetensors", folder / "run"}).code, 0);
  auto answer = checkpoint({"export", folder / "run", folder / "hf", "--names", "gpt2"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(has(answer.err, "give --heads N")) << answer.err;
  EXPECT_FALSE(fs::exists(folder / "hf"));
  write_text(folder / "run/config.json", R"({"model": {"type": "gpt", "heads": 2}})");
  answer = checkpoint({"export", folder / "run", folder / "hf", "--names", "gpt2"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(json::parse(read_file(folder / "hf/config.json"))["n_head"], 2);
  answer = checkpoint({"export", folder / "run", folder / "h3", "--names", "gpt2", "--heads", "3"});
  EXPECT_TRUE(has(answer.err, "a width of 2 does not divide into 3 heads")) << answer.err;
}

TEST(cli_checkpoint_exchange, prefixes_are_mapped_on_the_way_out) {
  PrivateFolder run, out;
  write_step(run.path());
  ASSERT_EQ(checkpoint({"export", run.path(), out / "hf", "--map", "fc.=net.fc."}).code, 0);
  EXPECT_TRUE(has(read_file(out / "hf/model.safetensors"), "\"net.fc.weight\":"));
  const std::pair<Arguments, const char*> rows[] = {
      {{"--map", "x=y"}, "has no tensor whose name begins with 'x'"},
      {{"--map", "fc"}, "'fc' is no map of names: write OLD=NEW"},
      {{"--map", "fc.weight=fc.bias"}, "would both be called 'fc.bias'"},
      {{"--names", "gpt2", "--heads", "1"}, "has a tensor 'fc.bias', which no GPT-2 has"},
      {{"--names", "gpt2", "--state"}, "leave --state out"},
      {{"--heads", "2"}, "--heads goes with --names gpt2"},
      {{"--max-shard-size", "lots"}, "'lots' is no size"},
      {{"--max-shard-size", "0"}, "'0' is no size"},
      {{"--format", "torch", "--max-shard-size", "1GB"}, "a .pt is one file"},
      {{"--format", "onnx"}, "--format"},
  };
  for (const auto& [words, part] : rows) {
    Arguments all{"export", run.path(), out / "refused"};
    all.insert(all.end(), words.begin(), words.end());
    const auto answer = checkpoint(all);
    EXPECT_EQ(answer.code, 2) << part;
    EXPECT_TRUE(has(answer.err, part)) << answer.err;
    EXPECT_FALSE(fs::exists(out / "refused"));
  }
  const auto answer = checkpoint({"export", run.path(), out / "x.safetensors"});
  EXPECT_TRUE(has(answer.err, "writes a folder")) << answer.err;
}

TEST(cli_checkpoint_exchange, damage_on_either_side_leaves_nothing_behind) {
  PrivateFolder run, out;
  const std::string step = write_step(run.path());
  flip_byte(step + "/model.safetensors", 1);
  for (const char* to : {"x.pt", "hf"}) {
    const auto answer = checkpoint({"export", run.path(), out / to});
    EXPECT_EQ(answer.code, 1);
    EXPECT_TRUE(has(answer.err, "does not fit its checksum")) << answer.err;
  }
  write_pt(out / "w.pt", {{"w", {4}, 3}});
  std::string bytes = read_file(out / "w.pt");
  bytes.resize(bytes.size() / 2);
  write_bytes(out / "w.pt", bytes);
  const auto answer = checkpoint({"import", out / "w.pt", out / "run"});
  EXPECT_EQ(answer.code, 1) << answer.err;
  EXPECT_EQ(std::distance(fs::directory_iterator(out.path()), {}), 1);
}

// Nothing in a file of Python's is run.
TEST(cli_checkpoint_exchange, a_pickle_that_calls_is_refused_by_the_name_of_what_it_calls) {
  PrivateFolder folder;
  Command python({"/usr/bin/python3", "-c", R"(
import os, pickle, sys, zipfile
class Evil:
    def __reduce__(self):
        return (os.system, ("touch " + sys.argv[2],))
with zipfile.ZipFile(sys.argv[1], "w") as out:
    out.writestr("archive/data.pkl", pickle.dumps({"w": Evil()}, protocol=2))
    out.writestr("archive/version", "3\n")
)",
                  folder / "evil.pt", folder / "ran"});
  ASSERT_EQ(python.finish(std::chrono::seconds(30)), 0) << python.err;
  const auto answer = checkpoint({"import", folder / "evil.pt", folder / "run"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(has(answer.err, "system")) << answer.err;
  EXPECT_FALSE(fs::exists(folder / "ran"));
  EXPECT_FALSE(fs::exists(folder / "run"));
}

}  // namespace
}  // namespace trireme::testing::checkpoint_exchange_test
