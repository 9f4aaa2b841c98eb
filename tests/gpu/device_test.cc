// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/gpu/stand_in.h"
#include "tests/support/conformance.h"

namespace device_test {

using namespace trireme;
using trireme::testing::all_dtypes;
using trireme::testing::conform;
using trireme::testing::gpu_count;
using trireme::testing::gpus_stand_in;
using trireme::testing::run_on_gpus;

// What the other tests of this folder rest on.

TEST(gpu_device, computes_what_the_cpu_computes) {
  TRIREME_NEEDS_GPU();
  const at::Device gpu(at::kCUDA, 0);
  const at::Tensor x = at::arange(60, at::kFloat).view({5, 12}), y = x.to(gpu);
  EXPECT_TRUE(y.is_cuda());
  EXPECT_TRUE(y.cpu().equal(x));
  EXPECT_TRUE(y.t().narrow(0, 2, 3).mul(2).add_(1).cpu().equal(x.t().narrow(0, 2, 3) * 2 + 1));
  EXPECT_TRUE(at::arange(7, y.options()).cpu().equal(at::arange(7, at::kFloat)));
  EXPECT_EQ(y.sum().item<float>(), x.sum().item<float>());
  at::Tensor leaf = y.clone().requires_grad_();
  leaf.mm(leaf.t()).tanh().sum().backward();
  at::Tensor plain = x.clone().requires_grad_();
  plain.mm(plain.t()).tanh().sum().backward();
  EXPECT_TRUE(leaf.grad().is_cuda());
  EXPECT_TRUE(leaf.grad().cpu().allclose(plain.grad()));
  EXPECT_ANY_THROW(y.add(x));  // one of each
}

TEST(gpu_device, memory_of_a_stand_in_is_beyond_the_cpu) {
  if (!gpus_stand_in()) GTEST_SKIP() << "GPUs do not stand in here";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const at::Tensor x = at::ones({4}, at::TensorOptions(at::kFloat).device(at::kCUDA));
  EXPECT_EXIT({ std::exit(*static_cast<volatile float*>(x.data_ptr()) == 1 ? 0 : 3); },
              ::testing::KilledBySignal(SIGSEGV), "");
}

TEST(gpu_device, a_group_for_its_tensors_conforms) {
  TRIREME_NEEDS_GPU();
  run_on_gpus(2, [](Group g, at::Device device) {
    conform(g, all_dtypes(), {{0}, {3, 5}, {5001}}, false, device);
    Group half = g.split(g.rank(), 0);
    conform(half, {at::kFloat}, {{7}}, false, device);
    g.barrier();
  });
}

}  // namespace device_test
