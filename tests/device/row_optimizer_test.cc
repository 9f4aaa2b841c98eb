// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/rows/row_optimizer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/optim/row_makers.h"
#include "tests/optim/state_visitors.h"
#include "tests/support/pretend_device/seeds.h"

// Steps over rows of a table on a device: the CPU's bits.
namespace trireme::device_row_optimizer_test {
namespace {

at::Tensor made(at::IntArrayRef shape, at::ScalarType type, double phase) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return at::arange(n, at::kDouble).mul(0.37).add(phase).sin().view(shape).to(type);
}

at::Tensor rows_of(int step) { return at::arange(step, 40, 1 + step % 3, at::kLong).contiguous(); }

TEST(device_row_optimizer, every_one_steps_and_keeps_state_as_on_the_cpu) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const RowMaker& m : row_makers())
      pretend::for_some_seeds(2, [&] {
        const at::Tensor here = made({40, 3, 5}, type, 0);
        const at::Tensor there = here.to(pretend::device());
        auto near = m.make({"w", here}), far = m.make({"w", there});
        for (int step = 0; step < 5; ++step) {
          const at::Tensor rows = rows_of(step), g = made({rows.size(0), 3, 5}, type, step);
          near->step(rows, g, 0.01, 0.5);
          // Rows where the table is, or in host memory, which needs no wait for the device.
          const at::Tensor late = g.to(pretend::device());
          if (step % 2 == 0) {
            far->step(rows.to(pretend::device()), late, 0.01, 0.5);
          } else {
            far->step(rows, late, 0.01, 0.5);
          }
        }
        EXPECT_TRUE(there.cpu().equal(here)) << m.name;
        Collect of_near, of_far;
        near->state(of_near);
        far->state(of_far);
        for (const auto& [key, t] : of_near.tensors) {
          EXPECT_EQ(of_far.tensors.at(key).device(), pretend::device()) << m.name << " " << key;
          EXPECT_TRUE(of_far.tensors.at(key).cpu().equal(t)) << m.name << " " << key;
        }
      });
}

TEST(device_row_optimizer, gradients_are_merged_as_on_the_cpu) {
  pretend::for_some_seeds(2, [&] {
    const at::Tensor rows = at::arange(60, at::kLong).mul(7).remainder(11);
    const at::Tensor g = made({60, 4}, at::kFloat, 1);
    const RowGradients here = merge_rows({{rows, g}});
    const RowGradients there = merge_rows({{rows.to(pretend::device()), g.to(pretend::device())}});
    EXPECT_EQ(there.rows.device(), pretend::device());
    EXPECT_EQ(there.gradients.device(), pretend::device());
    EXPECT_TRUE(there.rows.cpu().equal(here.rows) && there.gradients.cpu().equal(here.gradients));
  });
}

}  // namespace
}  // namespace trireme::device_row_optimizer_test
