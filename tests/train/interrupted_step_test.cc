// SPDX-License-Identifier: Apache-2.0
// A step that an exception ended in the middle: the next one must not reduce what is left of it.
#include <gtest/gtest.h>

#include "tests/grad/tied_net.h"
#include "tests/train/small_runs.h"
#include "trireme/train/gradients/gradients.h"

namespace interrupted_step_test {

using namespace trireme;
using namespace trireme::testing;

TEST(train_interrupted_step, the_next_one_is_refused_under_zero_1_and_2) {
  for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients})
    for (const bool reproducible : {false, true})
      run_threads(2, [&](Group g) {
        TiedNet net = tied_net();
        NamedTensors parameters;
        for (const at::Tensor& p : each_once(*net))
          parameters.emplace_back("p" + std::to_string(parameters.size()), p);
        ShardedGradientOptions options;
        options.stage = stage;
        options.reproducible = reproducible;
        const auto gradients = sharded_gradients(parameters, {}, g, options);
        gradients->open(2);
        gradients->begin_backward(0, 0);
        EXPECT_THROW(gradients->open(2), UsageError) << static_cast<int>(stage) << reproducible;
      });
}

}  // namespace interrupted_step_test
