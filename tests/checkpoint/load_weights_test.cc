// SPDX-License-Identifier: Apache-2.0
// Weights alone, of a step that may hold more.
#include "trireme/checkpoint/load_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/refusals.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/writer.h"
#include "trireme/comm/start/run.h"

namespace trireme::testing::load_weights_test {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

StateWalk of(const Tensors& tensors) {
  return [tensors](StateVisitor& v) {
    for (const auto& [name, t] : tensors) v.tensor(name, t);
  };
}

at::Tensor numbers(at::ScalarType dtype = at::kFloat) { return at::arange(6, dtype).view({2, 3}); }

std::string refused(const std::string& path, const Tensors& to, const WeightOptions& options = {}) {
  return refusal([&] { load_weights(path, of(to), {}, options); });
}

}  // namespace

TEST(checkpoint_load_weights, the_rest_of_a_step_is_not_looked_at) {
  PrivateFolder folder;
  save_step(folder.path(), 5, of({{"model.w", numbers()}, {"optim.exp_avg.w", numbers()}}));
  const Tensors to = {{"model.w", at::zeros({2, 3})}};
  EXPECT_EQ(load_weights(folder.path(), of(to)).step, 5);
  EXPECT_TRUE(at::equal(to.at("model.w"), numbers()));
}

TEST(checkpoint_load_weights, beginnings_of_names_are_mapped_in_their_order) {
  PrivateFolder folder;
  save_step(folder.path(), 0,
            of({{"model.net.body.a", numbers()}, {"model.net.head.b", numbers() + 1}}));
  const Tensors to = {{"model.backbone.a", at::zeros({2, 3})}, {"model.head.b", at::zeros({2, 3})}};
  load_weights(folder.path(), of(to), {}, {.map = {"net.body.=backbone.", "net.="}});
  EXPECT_TRUE(at::equal(to.at("model.backbone.a"), numbers()));
  EXPECT_TRUE(at::equal(to.at("model.head.b"), numbers() + 1));
  EXPECT_TRUE(has(refused(folder.path(), to, {.map = {"nett.="}}),
                  "has no tensor whose name begins with 'model.nett.'"));
  EXPECT_TRUE(has(refused(folder.path(), to, {.map = {"net"}}), "'net' is no map of names"));
  EXPECT_TRUE(has(refused(folder.path(), to, {.map = {"net.body.a=net.head.b"}}),
                  "two tensors have the name 'model.net.head.b'"));
}

TEST(checkpoint_load_weights, what_is_missing_or_left_over_is_named_up_to_five) {
  PrivateFolder folder;
  Tensors many, few = {{"model.w", numbers()}};
  for (char c = 'a'; c < 'h'; ++c) many[std::string("model.") + c] = numbers();
  many["model.w"] = numbers();
  save_step(folder / "many", 0, of(many));
  save_step(folder / "few", 0, of(few));
  const std::string nor = " (nor 'model.b', 'model.c', 'model.d', 'model.e' and 2 more)";
  EXPECT_TRUE(has(refused(folder / "many", few),
                  "holds tensor 'model.a', which this state does not know" + nor));
  EXPECT_TRUE(has(refused(folder / "few", many),
                  "has no tensor 'model.a', which this state asks for" + nor));
}

TEST(checkpoint_load_weights, excepted_names_keep_their_values_or_are_left_over) {
  PrivateFolder folder;
  save_step(folder.path(), 0, of({{"model.w", numbers()}, {"model.head.old", numbers()}}));
  const Tensors to = {{"model.w", at::zeros({2, 3})}, {"model.head.new", at::ones({4})}};
  EXPECT_NE(refused(folder.path(), to, {.except = {"head.new"}}), "");
  EXPECT_NE(refused(folder.path(), to, {.except = {"*.old"}}), "");
  load_weights(folder.path(), of(to), {}, {.except = {"head.*"}});
  EXPECT_TRUE(at::equal(to.at("model.w"), numbers()));
  EXPECT_TRUE(at::equal(to.at("model.head.new"), at::ones({4})));
}

TEST(checkpoint_load_weights, floats_are_converted_and_integers_are_not) {
  PrivateFolder folder;
  save_step(folder.path(), 0, of({{"model.w", numbers()}}));
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kDouble}) {
    const Tensors to = {{"model.w", at::zeros({2, 3}, dtype)}};
    load_weights(folder.path(), of(to));
    EXPECT_TRUE(at::equal(to.at("model.w"), numbers().to(dtype))) << c10::toString(dtype);
  }
  EXPECT_TRUE(has(refused(folder.path(), {{"model.w", at::zeros({2, 3}, at::kLong)}}),
                  "'model.w' is F32 there and Long here"));
}

TEST(checkpoint_load_weights, ranks_get_their_parts_converted) {
  PrivateFolder folder;
  save_step(folder.path(), 0, of({{"model.w", numbers()}}));
  run_threads(2, [&](Group g) {
    at::Tensor part = at::zeros({3}, at::kDouble);
    load_weights(
        folder.path(),
        [&](StateVisitor& v) {
          v.tensor(Slice::range("model.w", {2, 3}, g.rank() * 3, 3), part);
        },
        g);
    if (!at::equal(part, numbers(at::kDouble)[g.rank()])) throw Error("another part");
  });
}

}  // namespace trireme::testing::load_weights_test
