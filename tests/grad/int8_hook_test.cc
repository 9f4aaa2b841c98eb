// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/compression/int8_hook.h"

#include <gtest/gtest.h>

#include "tests/grad/codec_rounds.h"
#include "tests/grad/small_net.h"

namespace int8_hook_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

MakeHook int8(int64_t block, bool error_feedback = true) {
  return [=](const NamedTensors& p, const Group& g) {
    return int8_hook(p, g, {block, {error_feedback, 0}});
  };
}

}  // namespace

TEST(grad_int8_hook, an_element_is_off_by_half_a_scale_for_each_rounding) {
  for (int64_t block : {8, 32, 256, 65536})
    for (int n : {2, 3, 4})
      for (int64_t size : {1, 2, 15, 16, 17, 63, 257, 1000, 4099})
        run_threads(n, [&](Group g) {
          Rounds run(g, int8(block, false), {{size}}, ReduceOp::sum, at::kFloat, 1 << 20);
          run.round(1);
          double largest = 0, sum = run.truth(1).abs().max().item<double>();
          for (int r = 0; r < n; ++r)
            largest += Rounds::gradient(r, 1, 0, {size}).abs().max().item<double>();
          const double off = (run.result() - run.truth(1)).abs().max().item<double>();
          // Each rank's share once, and the sum once.
          expect(off <= 0.5001 * (largest + sum + largest / 254) / 127,
                 fmt::format("{} elements over {} ranks: off by {}", size, n, off));
        });
}

TEST(grad_int8_hook, zeros_stay_zeros) {
  run_threads(3, [](Group g) {
    Rounds run(g, int8(32), {{100}, {7}});
    run.round(0, [](size_t, at::Tensor& gradient) { gradient.zero_(); });
    expect(run.result().eq(0).all().item<bool>() && run.kept().eq(0).all().item<bool>(), "zeros");
    run.round(1, [](size_t p, at::Tensor& gradient) {
      if (p == 0) gradient.narrow(0, 32, 32).zero_();
    });
    expect(run.parameters[0].second.grad().narrow(0, 32, 32).eq(0).all().item<bool>(), "a block");
  });
}

TEST(grad_int8_hook, refuses_blocks_of_no_use) {
  for (int64_t block : {0, 7, 65537, -1}) EXPECT_THROW(int8_codec(block), UsageError);
}

}  // namespace int8_hook_test
