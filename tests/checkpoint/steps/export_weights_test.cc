// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/exchange/export_weights.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/interop/weight_files.h"
#include "tests/support/refusals.h"
#include "trireme/base/check.h"
#include "trireme/base/file/file_faults.h"
#include "trireme/interop/flatten.h"

namespace trireme::test::export_weights_test {
namespace {

namespace fs = std::filesystem;
using namespace trireme::interop;
using trireme::interop::testing::floats_of;
using trireme::interop::testing::names_of;
using trireme::testing::has;
using trireme::testing::refusal;

constexpr uint64_t kNoLimit = UINT64_MAX;

std::vector<float> counting(int64_t count, float first = 0) {
  std::vector<float> list(static_cast<size_t>(count));
  for (size_t i = 0; i < list.size(); ++i) list[i] = first + static_cast<float>(i);
  return list;
}

/// Three weights of which one lies in boxes of all kinds, and the state of an optimizer.
std::string write_step(const std::string& run) {
  return write_test_step(
      run, 100,
      {{"model.fc.weight",
        "F32",
        {3, 2},
        counted(6),
        {{{0, 0}, {1, 2}}, {{1, 0}, {1, 1}}, {{1, 1}, {1, 1}}, {{2, 0}, {1, 2}}}},
       {"model.fc.bias", "F32", {2}, counted(2)},
       {"model.norm.seen", "I64", {}, bytes_of_list(std::vector<int64_t>{7})},
       {"optim.exp_avg.fc.weight", "F32", {3, 2}, counted(6, 0.5)}},
      {{"train.step", int64_t{100}}, {"train.loss", 0.25}, {"data.raw", std::string("\xff")}}, 4);
}

ExportPlan weights() {
  return {{{"model.fc.bias", "fc.bias"},
           {"model.fc.weight", "fc.weight"},
           {"model.norm.seen", "norm.seen"}}};
}

size_t entries_in(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(checkpoint_steps_export, boxes_become_whole_tensors_of_a_safetensors_file) {
  PrivateFolder run, out;
  StepReader step(write_step(run.path()));
  verify_exported(step, weights());
  const Exported written = export_safetensors(step, weights(), out / "a/hf", kNoLimit, false);
  EXPECT_EQ(written.files, std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(written.bytes, 40u);
  const WeightSource read = open_weights(out / "a/hf");
  EXPECT_EQ(names_of(read), (std::vector<std::string>{"fc.bias", "fc.weight", "norm.seen"}));
  EXPECT_EQ(floats_of(*read.find("fc.weight")), counting(6));
  EXPECT_EQ(read.find("norm.seen")->array.dtype, "I64");
  EXPECT_EQ(entries_in(out / "a"), 1u);
}

TEST(checkpoint_steps_export, shards_are_no_larger_than_asked_and_each_tensor_is_in_one) {
  PrivateFolder run, out;
  StepReader step(write_step(run.path()));
  for (const auto& [most, files] : {std::pair<uint64_t, size_t>{32, 3}, {24, 4}, {1, 4}, {40, 1}}) {
    const std::string folder = out / std::to_string(most);
    const Exported written = export_safetensors(step, weights(), folder, most, false);
    EXPECT_EQ(written.files.size(), files) << most;  // with the index, if there are two
    EXPECT_EQ(fs::exists(folder + "/model.safetensors.index.json"), files > 1);
    const WeightSource read = open_weights(folder);  // which compares the index with the files
    EXPECT_EQ(read.arrays.size(), 3u);
    EXPECT_EQ(floats_of(*read.find("fc.weight")), counting(6));
  }
  EXPECT_TRUE(fs::exists(out / "24/model-00002-of-00003.safetensors"));
}

TEST(checkpoint_steps_export, matrices_are_turned_whatever_their_size) {
  PrivateFolder run, out;
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{3, 2}, {1, 70}, {65, 33}}) {
    const std::string from = write_test_step(
        run.path(), rows, {{"model.w", "F32", {rows, columns}, counted(rows * columns)}});
    StepReader step(from);
    const std::string folder = out / std::to_string(rows);
    export_safetensors(step, {{{"model.w", "w", true}}}, folder, kNoLimit, false);
    const WeightSource read = open_weights(folder);
    EXPECT_EQ(read.find("w")->array.shape, (std::vector<int64_t>{columns, rows}));
    const auto got = floats_of(*read.find("w"));
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r)
        ASSERT_EQ(got[static_cast<size_t>(c * rows + r)], static_cast<float>(r * columns + c));
  }
}

TEST(checkpoint_steps_export, a_pt_file_has_a_state_dict_and_ties_what_is_tied) {
  PrivateFolder run, out;
  StepReader step(write_step(run.path()));
  ExportPlan plan = weights();
  plan.tensors.push_back({"model.fc.weight", "head", false, "fc.weight"});
  const Exported written = export_torch(step, plan, out / "x.pt", false);
  EXPECT_EQ(written.bytes, 40u);
  const TorchFile file(out / "x.pt");
  file.verify();
  const WeightSource read = open_weights(out / "x.pt");
  ASSERT_EQ(read.arrays.size(), 4u);
  EXPECT_EQ(read.find("head")->array.boxes[0].at.begin,
            read.find("fc.weight")->array.boxes[0].at.begin);
  EXPECT_EQ(floats_of(*read.find("head")), counting(6));
  EXPECT_EQ(entries_in(out.path()), 1u);
}

TEST(checkpoint_steps_export, a_whole_state_has_other_tensors_and_values) {
  PrivateFolder run, out;
  StepReader step(write_step(run.path()));
  ExportPlan plan = weights();
  plan.whole_state = true;
  plan.tensors.push_back({"optim.exp_avg.fc.weight", "optim.exp_avg.fc.weight"});
  export_torch(step, plan, out / "x.pt", false);
  const TorchFile file(out / "x.pt");
  std::map<std::string, NodeId> values;
  for (const NamedNode& v : file.values()) values[v.name] = v.node;
  EXPECT_EQ(file.tree()[values.at("values.train.step")].integer, 100);
  EXPECT_EQ(file.tree()[values.at("values.train.loss")].real, 0.25);
  EXPECT_EQ(file.tree()[values.at("values.data.raw")].text, "hex:ff");
  const WeightSource read = open_weights(out / "x.pt");  // the weights are found in it
  EXPECT_EQ(names_of(read), (std::vector<std::string>{"fc.bias", "fc.weight", "norm.seen"}));
  EXPECT_EQ(file.arrays().size(), 4u);

  export_safetensors(step, plan, out / "hf", kNoLimit, false);
  EXPECT_EQ(open_weights(out / "hf").arrays.size(), 4u);
  const std::string text = read_file(out / "hf/model.safetensors");
  EXPECT_TRUE(has(text, R"("value.train.step":"100")")) << text;
}

TEST(checkpoint_steps_export, damage_is_found_before_anything_is_written) {
  PrivateFolder run;
  const std::string folder = write_step(run.path());
  flip_byte(folder + "/model-rank00003.safetensors", 1);
  StepReader step(folder);
  try {
    verify_exported(step, weights());
    FAIL() << "the damage was not found";
  } catch (const Corrupt& e) {
    EXPECT_TRUE(has(e.what(),
                    "model-rank00003.safetensors: tensor 'fc.weight': block 0 does not "
                    "fit its checksum"))
        << e.what();
  }
  verify_exported(step, {{{"model.fc.bias", "fc.bias"}}});
}

TEST(checkpoint_steps_export, what_is_there_is_replaced_only_if_an_export_made_it) {
  PrivateFolder run, out;
  StepReader step(write_step(run.path()));
  const auto refused = [&](const std::string& folder, bool replace) {
    return refusal([&] { export_safetensors(step, weights(), folder, kNoLimit, replace); });
  };
  EXPECT_EQ(refused(out / "hf", false), "");
  EXPECT_TRUE(has(refused(out / "hf", false), "is there already: choose another name, or --force"));
  interop::testing::write_bytes(out / "hf/model.safetensors", "stale");
  EXPECT_EQ(refused(out / "hf", true), "");
  EXPECT_EQ(open_weights(out / "hf").arrays.size(), 3u);
  interop::testing::write_bytes(out / "hf/thesis.tex", "years of work");
  EXPECT_TRUE(has(refused(out / "hf", true), "holds 'thesis.tex', which no export made"));
  EXPECT_EQ(read_file(out / "hf/thesis.tex"), "years of work");
  EXPECT_TRUE(has(refused(step.folder(), true), "which no export made"));  // a checkpoint of ours
  EXPECT_TRUE(has(refused(out / "hf/thesis.tex", true), "is not a folder"));
  EXPECT_EQ(entries_in(out.path()), 1u);

  export_torch(step, weights(), out / "x.pt", false);
  const auto refused_pt = [&](const std::string& path, bool replace) {
    return refusal([&] { export_torch(step, weights(), path, replace); });
  };
  EXPECT_TRUE(has(refused_pt(out / "x.pt", false), "is there already"));
  EXPECT_EQ(refused_pt(out / "x.pt", true), "");
  EXPECT_TRUE(has(refused_pt(out / "hf", true), "is not a file"));
}

TEST(checkpoint_steps_export, a_disk_that_is_full_leaves_nothing) {
  PrivateFolder run, out;
  StepReader step(write_step(run.path()));
  for (const char* kind : {"pwrite", "fsync", "mkdir", "rename"}) {
    set_file_faults(std::string("only=/") + fs::path(out.path()).filename().string() + "/," + kind +
                    ":ENOSPC");
    EXPECT_THROW(export_safetensors(step, weights(), out / "hf", 24, false), ResourceError) << kind;
    if (std::string(kind) != "mkdir" && std::string(kind) != "rename") {
      EXPECT_THROW(export_torch(step, weights(), out / "x.pt", false), ResourceError) << kind;
    }
    set_file_faults("");
    EXPECT_EQ(entries_in(out.path()), 0u) << kind;
  }
}

}  // namespace
}  // namespace trireme::test::export_weights_test
