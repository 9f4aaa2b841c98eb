// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/checkpoint/split_state.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/compare_tensors.h"
#include "trireme/checkpoint/steps/verify_step.h"

namespace compare_layouts_test {

using namespace trireme;
using namespace trireme::test;

TEST(checkpoint_compare_layouts, one_state_saved_by_other_ranks_and_stages_is_equal) {
  PrivateFolder root;
  const Seat seats[] = {{.world = 2, .shards = 2, .stage = 3},
                        {.world = 4, .shards = 4, .stage = 3},
                        {.world = 4, .shards = 2, .stage = 2},
                        {.world = 3, .shards = 3, .stage = 3}};
  std::vector<StepReader> steps;
  for (const Seat& seat : seats) {
    const std::string run = root / seat.layout();
    save_split(run, 5, seat);
    steps.emplace_back(run + "/step-00000005");
    EXPECT_TRUE(verify_step(steps.back().folder()).good());
  }
  for (StepReader& step : steps) {
    EXPECT_EQ(step.index().tensors.size(), 7u);
    for (const auto& [name, tensor] : step.index().tensors) {
      ASSERT_TRUE(steps[0].index().tensors.count(name)) << name;
      EXPECT_EQ(tensor.shape(), steps[0].index().tensors.at(name).shape()) << name;
      EXPECT_EQ(compare_tensors(steps[0], step, name, 0).differing, 0) << name;
    }
    EXPECT_EQ(step.index().values, steps[0].index().values);
  }
  save_split(root / "other", 6, seats[0]);
  StepReader other(root / "other/step-00000006");
  EXPECT_EQ(compare_tensors(steps[1], other, "model.fc.weight", 0).differing, 15);
}

}  // namespace compare_layouts_test
