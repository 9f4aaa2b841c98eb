// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/safetensors.h"

using namespace trireme;

// checkpoint-v1/ was written by save_step(…, 42, FixtureState) when version 1 of the format landed.
// It must load for ever.
namespace {

const std::string kFixture = TRIREME_SOURCE_DIR "/tests/formats/checkpoint-v1";

struct FixtureState {
  at::Tensor weight = at::zeros({2, 3}), half = at::zeros({2}, at::kHalf),
             brain = at::zeros({2}, at::kBFloat16);
  at::Tensor seen = at::zeros({}, at::kLong), average = at::zeros({2, 3}, at::kDouble);
  at::Tensor i32 = at::zeros({2}, at::kInt), i16 = at::zeros({2}, at::kShort),
             i8 = at::zeros({2}, at::kChar);
  at::Tensor u8 = at::zeros({2}, at::kByte), mask = at::zeros({3}, at::kBool),
             nothing = at::zeros({0, 4});
  int64_t step = 0, most = 0;
  double loss = 0, none = 0;
  std::string note, raw;

  void operator()(StateVisitor& v) {
    v.tensor("model.fc.weight", weight);
    v.tensor("model.fc.half", half);
    v.tensor("model.fc.brain", brain);
    v.tensor("model.norm.seen", seen);
    v.tensor("optim.exp_avg.fc.weight", average);
    v.tensor("data.i32", i32);
    v.tensor("data.i16", i16);
    v.tensor("data.i8", i8);
    v.tensor("data.u8", u8);
    v.tensor("data.mask", mask);
    v.tensor("data.nothing", nothing);
    v.value("train.step", step);
    v.value("train.most", most);
    v.value("train.loss", loss);
    v.value("train.none", none);
    v.value("train.note", note);
    v.value("train.raw", raw);
  }
};

}  // namespace

TEST(formats_checkpoint, version_1_loads_with_all_its_values) {
  FixtureState s;
  const auto info = load_step(kFixture, std::ref(s));
  EXPECT_EQ(info.step, 42);
  EXPECT_EQ(info.world, 2);
  EXPECT_TRUE(s.weight.equal(at::tensor({0.5f, -1.5f, 2.0f, 3.25f, -0.0f, 1e-30f}).view({2, 3})));
  EXPECT_TRUE(s.half.equal(at::tensor({1.5f, -2.5f}).to(at::kHalf)));
  EXPECT_TRUE(s.brain.equal(at::tensor({3.0f, -0.5f}).to(at::kBFloat16)));
  EXPECT_EQ(s.seen.item<int64_t>(), int64_t{1} << 40);
  EXPECT_TRUE(s.average.equal(at::arange(6, at::kDouble).view({2, 3}) / 3));
  EXPECT_TRUE(s.i32.equal(at::tensor({-7, 70'000}, at::kInt)));
  EXPECT_TRUE(s.i16.equal(at::tensor({-7, 7000}, at::kShort)));
  EXPECT_TRUE(s.i8.equal(at::tensor({-7, 70}, at::kChar)));
  EXPECT_TRUE(s.u8.equal(at::tensor({7, 200}, at::kByte)));
  EXPECT_TRUE(s.mask.equal(at::tensor({1, 0, 1}, at::kInt).to(at::kBool)));
  EXPECT_EQ(s.nothing.numel(), 0);
  EXPECT_EQ(s.step, 42);
  EXPECT_EQ(s.most, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(s.loss, 0.1);
  EXPECT_EQ(s.none, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(s.note, "grüße \"quoted\"");
  EXPECT_EQ(s.raw, std::string("\xff\x00\x7f", 3));
}

TEST(formats_checkpoint, version_1_keeps_its_model_under_plain_names) {
  SafetensorsFile model(kFixture + "/model.safetensors");
  EXPECT_EQ(model.metadata().at("format"), "pt");
  EXPECT_EQ(model.tensor("fc.weight").sizes(), (at::IntArrayRef{2, 3}));
}

TEST(formats_checkpoint, a_newer_version_is_refused_naming_both) {
  PrivateFolder copy;
  for (const auto& item : std::filesystem::directory_iterator(kFixture))
    std::filesystem::copy_file(item.path(), copy / item.path().filename().string());
  const std::string path = copy / "trireme.index.json";
  std::string text = read_file(path);
  const std::string mark = "\"version\": 1";
  ASSERT_NE(text.find(mark), std::string::npos);
  text.replace(text.find(mark), mark.size(), "\"version\": 3");
  write_file_atomic(path, text);
  FixtureState s;
  try {
    load_step(copy.path(), std::ref(s));
    FAIL() << "loaded";
  } catch (const UsageError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("version 3"), std::string::npos) << what;
    EXPECT_NE(what.find("version 2"), std::string::npos) << what;
  }
  EXPECT_EQ(s.step, 0);
}
