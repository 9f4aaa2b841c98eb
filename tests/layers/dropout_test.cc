// SPDX-License-Identifier: Apache-2.0
#include "trireme/layers/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/tensor/random/random.h"

namespace dropout_test {

using namespace trireme;

namespace {
struct Branch : torch::nn::Module {
  Branch() : drop(register_module("drop", Dropout(0.5))) {}
  Dropout drop;
};
struct Tree : torch::nn::Module {
  Tree()
      : first(register_module("first", Dropout(0.5))),
        branch(register_module("branch", std::make_shared<Branch>())) {}
  Dropout first;
  std::shared_ptr<Branch> branch;
};
}  // namespace

TEST(layers_dropout, takes_its_name_from_its_place) {
  Tree tree;  // on the stack: the root has no shared_ptr of itself
  name_dropouts(tree);
  EXPECT_EQ(tree.first->full_name(), "first");
  EXPECT_EQ(tree.branch->drop->full_name(), "branch.drop");
}

TEST(layers_dropout, in_a_scope_the_name_keys_the_mask) {
  Tree tree;
  name_dropouts(tree);
  auto x = at::ones({2, 100});
  const RandomContext context{42, 1, {4, 5}};
  at::Tensor direct, first, inner;
  {
    RandomScope scope(context);
    direct = keyed_dropout(x, 0.5, "branch.drop");
  }
  RandomScope scope(context);
  first = tree.first->forward(x);
  inner = tree.branch->drop->forward(x);
  EXPECT_TRUE(inner.equal(direct));
  EXPECT_FALSE(inner.equal(first));
}

TEST(layers_dropout, eval_mode_is_the_identity) {
  Tree tree;
  tree.eval();
  auto x = at::ones({2, 100});
  EXPECT_TRUE(tree.first->forward(x).is_same(x));
}

TEST(layers_dropout, outside_a_scope_it_is_libtorchs) {
  Tree tree;
  auto x = at::ones({2, 100});
  at::manual_seed(1);
  auto ours = tree.first->forward(x);
  at::manual_seed(1);
  EXPECT_TRUE(ours.equal(at::dropout(x, 0.5, true)));
  EXPECT_GT(ours.eq(0).sum().item<int64_t>(), 0);
}

TEST(layers_dropout, in_a_scope_a_module_without_name_is_refused) {
  Dropout drop(0.5);
  RandomScope scope({42, 1, {4, 5}});
  EXPECT_THROW(drop->forward(at::ones({2, 3})), UsageError);
}

TEST(layers_dropout, clones_keep_probability_and_name) {
  Dropout drop(0.25);
  drop->set_full_name("x.y");
  auto copy = std::dynamic_pointer_cast<DropoutImpl>(drop->clone());
  EXPECT_EQ(copy->p(), 0.25);
  EXPECT_EQ(copy->full_name(), "x.y");
}

TEST(layers_dropout, probabilities_outside_0_to_1_are_refused) {
  EXPECT_THROW(Dropout(-0.1), UsageError);
  EXPECT_THROW(Dropout(1.1), UsageError);
}

}  // namespace dropout_test
