// SPDX-License-Identifier: Apache-2.0
// A step that ranks write here and now, opened by stock PyTorch (2.8 and later).
#include "tests/checkpoint/steps/stock_pytorch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/checkpoint/sharded_writer.h"
#include "trireme/checkpoint/steps/exchange/export_weights.h"
#include "trireme/checkpoint/steps/step_reader.h"
#include "trireme/comm/start/run.h"
#include "trireme/interop/weights/array_reader.h"
#include "trireme/interop/weights/weight_source.h"

namespace stock_pytorch_test {

using namespace trireme;
using namespace trireme::test;
using trireme::interop::testing::hex_of;

namespace {

constexpr int64_t kRanks = 2;

/// Of a tensor of all ranks.
at::Tensor values(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  const at::Tensor numbers = at::arange(Slice::whole("", shape).numel(), at::kDouble);
  return (dtype == at::kBool ? numbers.remainder(3).eq(1) : numbers / 7 - 1).to(dtype).view(shape);
}

/// As a rank of ZeRO-3 holds its weights and optimizer state (flat ranges), beside a layer that is
/// divided over dim 1, as tensor parallelism has it, and what all ranks hold.
void show(StateVisitor& v, int64_t rank) {
  const auto flat = [&](const std::string& name, const std::vector<int64_t>& shape,
                        at::ScalarType dtype) {
    const at::Tensor all = values(shape, dtype).view({-1});
    const int64_t each = (all.numel() + kRanks - 1) / kRanks, begin = rank * each;
    const int64_t count = std::min(each, all.numel() - begin);
    v.tensor(Slice::range(name, shape, begin, count), all.narrow(0, begin, count).clone());
  };
  flat("model.fc.weight", {5, 3}, at::kFloat);
  flat("model.conv.weight", {3, 2, 5}, at::kBFloat16);
  flat("optim.exp_avg.fc.weight", {5, 3}, at::kDouble);
  const Slice columns{"model.qkv.weight", {4, 6}, {0, 3 * rank}, {4, 3}};
  v.tensor(columns, values({4, 6}, at::kFloat).narrow(1, 3 * rank, 3).contiguous());
  v.tensor("model.fc.bias", values({3}, at::kHalf));
  v.tensor("model.mask", values({7}, at::kBool));
  v.tensor("data.seen", values({}, at::kLong));
}

}  // namespace

TEST(checkpoint_stock_pytorch, a_step_of_two_ranks_is_read_as_our_export_has_it_to_the_bit) {
  PrivateFolder folder;
  run_threads(kRanks, [&](Group g) {
    save_sharded_step(folder / "run", 5, [&](StateVisitor& v) { show(v, g.rank()); }, g,
                      {.layout = "zero stage 3, dp_shard 2, dp_replicate 1"});
  });
  StepReader step(folder / "run/step-00000005");
  const auto& tensors = step.index().tensors;
  EXPECT_GT(tensors.at("model.fc.weight").parts.size(), 2u);    // rows, and parts of a row
  EXPECT_GT(tensors.at("model.conv.weight").parts.size(), 2u);  // planes, and parts of one
  const auto& columns = tensors.at("model.qkv.weight").parts;
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[0].slice.lengths, (std::vector<int64_t>{4, 3}));

  ExportPlan plan;
  for (const auto& [name, tensor] : tensors) plan.tensors.push_back({name, place_of(name).key});
  verify_exported(step, plan);
  export_safetensors(step, plan, folder / "ours", uint64_t{1} << 30, /*replace=*/false);
  const interop::WeightSource ours = interop::open_weights(folder / "ours");
  ASSERT_EQ(ours.arrays.size(), tensors.size());

  std::string why;
  const auto theirs = read_by_stock_pytorch(step.folder(), &why);
  if (!theirs) GTEST_SKIP() << why;
  EXPECT_EQ(theirs->size(), ours.arrays.size());
  interop::ArrayReader reader;
  for (const interop::SourceArray& a : ours.arrays) {
    ASSERT_TRUE(theirs->contains(a.there)) << a.there;
    const auto& found = (*theirs)[a.there];
    EXPECT_EQ(found["dtype"], a.array.dtype) << a.there;
    EXPECT_EQ(found["shape"].get<std::vector<int64_t>>(), a.array.shape) << a.there;
    EXPECT_EQ(found["hex"], hex_of(reader.elements(a.array))) << a.there;
  }
}

}  // namespace stock_pytorch_test
