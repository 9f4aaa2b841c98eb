// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>

#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/comm/start/run.h"

namespace checkpoint_test {

using namespace trireme;

// checkpoint-v1/ was written by save_step(…, 42, FixtureState) when version 1 of the format landed.
// It must load for ever.
namespace {

const std::string kFixture = trireme::testing::source_path("/tests/formats/checkpoint-v1");

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

// checkpoint-v2/ was written by save_sharded_step(…, 42, SplitFixture) on four ranks, of which 0, 2
// and 1, 3 hold the same, when version 2 landed. It, too, must load for ever.
const std::string kSplitFixture = trireme::testing::source_path("/tests/formats/checkpoint-v2");
const std::string kSplitLayout = "zero stage 3, dp_shard 2, dp_replicate 2";

at::Tensor weight_of_fixture() { return at::arange(9, at::kFloat) / 8 - 0.5; }

struct SplitFixture {
  SplitFixture(int rank, bool filled) : odd(rank % 2) {
    if (!filled) return;
    weight.copy_(weight_of_fixture().slice(0, odd ? 5 : 0, odd ? 9 : 5));
    average.copy_(weight.to(at::kDouble) / 3);
    if (odd) half.fill_(1.5);
    mean.copy_(at::tensor({0.25f, 0.75f})), seen.fill_(int64_t{1} << 40);
    step = 42, steps = 40 + odd, scale = -0.0, data = "grüße";
  }
  bool operator==(const SplitFixture& o) const {
    return weight.equal(o.weight) && average.equal(o.average) && half.equal(o.half) &&
           mean.equal(o.mean) && seen.equal(o.seen) && step == o.step && steps == o.steps &&
           std::signbit(scale) == std::signbit(o.scale) && data == o.data;
  }
  void operator()(StateVisitor& v) {
    const int64_t begin = odd ? 5 : 0, length = odd ? 4 : 5;
    v.tensor({"model.fc.weight", {9}, {begin}, {length}}, weight);
    v.tensor({"optim.exp_avg.fc.weight", {9}, {begin}, {length}}, average);
    if (odd) v.tensor({"model.fc.half", {2}, {0}, {2}}, half);
    v.tensor("model.norm.mean", mean);
    v.tensor("data.seen", seen);
    v.tensor("data.nothing", nothing);
    v.value("train.step", step);
    v.value("train.scale", scale);
    v.value("train.data", data);
    v.value(odd ? "optim.steps.fc.half" : "optim.steps.fc.weight", steps);
  }

  bool odd;
  at::Tensor weight = at::zeros({odd ? 4 : 5}), average = at::zeros({odd ? 4 : 5}, at::kDouble);
  at::Tensor half = at::zeros({2}, at::kHalf), mean = at::zeros({2});
  at::Tensor seen = at::zeros({}, at::kLong), nothing = at::zeros({0, 4});
  int64_t step = 0, steps = 0;
  double scale = 1;
  std::string data;
};

// checkpoint-v3/ was written by save_sharded_step(…, 42, BoxFixture) on three ranks when version 3
// landed: flat ranges of a matrix, columns of another, what each rank has for itself, and what all
// hold. It, too, must load for ever.
const std::string kBoxFixture = trireme::testing::source_path("/tests/formats/checkpoint-v3");

struct BoxFixture {
  BoxFixture(int r, int n, bool filled) : rank(r), ranks(n) {
    if (!filled) return;
    const at::Tensor all = at::arange(15, at::kFloat) / 8 - 0.5;
    range.copy_(all.narrow(0, 5 * rank, 5));
    columns.copy_((at::arange(12, at::kDouble) / 3).view({2, 6}).narrow(1, 2 * rank, 2));
    error.fill_(1 << rank);
    seen.fill_(int64_t{1} << 40), mask.copy_(at::tensor({1, 0, 1}, at::kInt));
    step = 42, scale = -0.0, data = "grüße";
  }
  bool operator==(const BoxFixture& o) const {
    return range.equal(o.range) && columns.equal(o.columns) && error.equal(o.error) &&
           seen.equal(o.seen) && mask.equal(o.mask) && step == o.step &&
           std::signbit(scale) == std::signbit(o.scale) && data == o.data;
  }
  void operator()(StateVisitor& v) {
    v.tensor(Slice::range("model.fc.weight", {5, 3}, 5 * rank, 5), range);
    v.tensor({"optim.exp_avg.qkv", {2, 6}, {0, 2 * rank}, {2, 2}}, columns);
    v.rank_tensor("hook.error.fc.weight", rank, ranks, RankStateRule::add, error);
    v.copy_of_rank_0("model.norm.mask", mask);
    v.tensor("data.seen", seen);
    v.tensor("data.nothing", nothing);
    v.value("train.step", step);
    v.value("train.scale", scale);
    v.value("train.data", data);
  }

  int rank, ranks;
  at::Tensor range = at::zeros({5}), columns = at::zeros({2, 2}, at::kDouble);
  at::Tensor error = at::zeros({4}), mask = at::zeros({3}, at::kBool);
  at::Tensor seen = at::zeros({}, at::kLong), nothing = at::zeros({0, 4});
  int64_t step = 0;
  double scale = 1;
  std::string data;
};

}  // namespace

TEST(formats_checkpoint, version_3_loads_on_every_rank_with_all_its_values) {
  run_threads(3, [](Group g) {
    BoxFixture s(g.rank(), 3, false);
    const auto info = load_step(kBoxFixture, std::ref(s), {.group = g});
    EXPECT_EQ(info.step, 42);
    EXPECT_EQ(info.layout, "three banks");
    EXPECT_TRUE(s == BoxFixture(g.rank(), 3, true)) << g.rank();
  });
  EXPECT_EQ(verify_checkpoint(kBoxFixture).world, 3);
}

TEST(formats_checkpoint, version_3_gives_its_tensors_whole) {
  at::Tensor weight = at::zeros({5, 3}), mask = at::zeros({3}, at::kBool);
  load_step(kBoxFixture,
            [&](StateVisitor& v) {
              v.tensor("model.fc.weight", weight);
              v.tensor("model.norm.mask", mask);
            },
            {.prefix = "model."});
  EXPECT_TRUE(weight.flatten().equal(at::arange(15, at::kFloat) / 8 - 0.5));
  EXPECT_TRUE(mask.equal(at::tensor({1, 0, 1}, at::kInt).to(at::kBool)));
  EXPECT_EQ(SafetensorsFile(kBoxFixture + "/model-rank00001-2.safetensors").entries().size(), 1u);
}

TEST(formats_checkpoint, version_2_loads_on_every_rank_with_all_its_values) {
  for (int rank = 0; rank < 4; ++rank) {
    SplitFixture s(rank, false);
    const auto info = load_step(kSplitFixture, std::ref(s), {.partial = true});
    EXPECT_EQ(info.step, 42);
    EXPECT_EQ(info.world, 4);
    EXPECT_EQ(info.layout, kSplitLayout);
    EXPECT_TRUE(s == SplitFixture(rank, true)) << rank;
  }
  EXPECT_EQ(verify_checkpoint(kSplitFixture).world, 4);
}

TEST(formats_checkpoint, version_2_gives_its_weights_whole) {
  at::Tensor weight = at::zeros({3, 3}), half = at::zeros({2}, at::kHalf), mean = at::zeros({2});
  load_step(kSplitFixture,
            [&](StateVisitor& v) {
              v.tensor("model.fc.weight", weight);
              v.tensor("model.fc.half", half);
              v.tensor("model.norm.mean", mean);
            },
            {.prefix = "model."});
  EXPECT_TRUE(weight.flatten().equal(weight_of_fixture()));
  EXPECT_TRUE(half.equal(at::full({2}, 1.5, at::kHalf)));
  EXPECT_TRUE(mean.equal(at::tensor({0.25f, 0.75f})));
}

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
  text.replace(text.find(mark), mark.size(), "\"version\": 4");
  write_file_atomic(path, text);
  FixtureState s;
  try {
    load_step(copy.path(), std::ref(s));
    FAIL() << "loaded";
  } catch (const UsageError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("version 4"), std::string::npos) << what;
    EXPECT_NE(what.find("version 3"), std::string::npos) << what;
  }
  EXPECT_EQ(s.step, 0);
}

}  // namespace checkpoint_test
