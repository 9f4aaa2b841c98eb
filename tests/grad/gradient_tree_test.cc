// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/gradient_tree.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"

namespace gradient_tree_test {

using namespace trireme;

namespace {

at::Tensor leaf(int g) {
  return (at::arange(1000, at::kFloat) * 1.37f + float(g) * 0.11f).sin() * float(1 << (g % 5));
}

// The tree over leaf numbers, written as the definition says.
at::Tensor tree(int lo, int hi) {
  return hi - lo == 1 ? leaf(lo) : tree(lo, (lo + hi) / 2) + tree((lo + hi) / 2, hi);
}

}  // namespace

TEST(grad_gradient_tree, equals_the_tree_over_leaf_numbers_on_any_power_of_two_of_ranks) {
  for (int leaves : {1, 2, 4, 8, 16}) {
    at::Tensor want = tree(0, leaves);
    for (int world = 1; world <= leaves && world <= 8; world *= 2)
      run_threads(world, [&](Group g) {
        const int mine = leaves / world;
        GradientTree t(1);
        at::Tensor out = at::empty({1000});
        t.open(mine);
        for (int i = 0; i < mine; ++i) {
          t.begin_leaf(i);
          check<Error>(t.add(0, leaf(g.rank() * mine + i), out) == (i + 1 == mine),
                       "done at leaf {} of {}", i, mine);
        }
        g.all_reduce(out).wait();
        check<Error>(out.equal(want), "{} leaves on {} ranks: other bits", leaves, world);
      });
  }
}

TEST(grad_gradient_tree, a_parameter_absent_from_some_leaves_gets_the_sum_of_the_others) {
  for (int mask = 0; mask < 16; ++mask) {
    GradientTree t(1);
    t.open(4);
    at::Tensor out = at::full({1000}, -1.0f);
    bool done = false;
    at::Tensor want = at::zeros({1000});
    for (int i = 0; i < 4; ++i) {
      t.begin_leaf(i);
      if (mask >> i & 1) done = t.add(0, leaf(i), out), want += leaf(i);
    }
    if (!done) done = t.finish(0, out);
    EXPECT_EQ(done, mask != 0) << mask;
    if (mask) {
      EXPECT_TRUE(at::allclose(out, want, 1e-5, 1e-5)) << mask;
    }
  }
}

TEST(grad_gradient_tree, refuses_a_number_of_leaves_that_is_no_power_of_two) {
  GradientTree t(1);
  EXPECT_THROW(t.open(3), UsageError);
  EXPECT_THROW(t.open(0), UsageError);
}

}  // namespace gradient_tree_test
