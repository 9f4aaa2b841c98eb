// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/checkpoint/test_state.h"
#include "tests/gpu/stand_in.h"
#include "trireme/base/file.h"

namespace checkpoint_test {

using namespace trireme;
using namespace trireme::test;

TEST(gpu_checkpoint, a_state_on_the_device_is_saved_and_loaded_in_place) {
  TRIREME_NEEDS_GPU();
  const at::Device gpu(at::kCUDA, 0);
  PrivateFolder run;
  TestState saved(100), loaded(-1);
  for (auto& [name, t] : saved.tensors) t = t.to(gpu);
  for (auto& [name, t] : loaded.tensors) t = t.to(gpu);
  save_step(run.path(), 100, std::ref(saved));
  void* memory = loaded.tensors.at("model.fc.weight").data_ptr();
  load_step(run.path(), std::ref(loaded));
  EXPECT_EQ(loaded.tensors.at("model.fc.weight").data_ptr(), memory);
  for (const auto& [name, t] : saved.tensors) {
    EXPECT_TRUE(loaded.tensors.at(name).is_cuda()) << name;
    EXPECT_TRUE(loaded.tensors.at(name).cpu().equal(t.cpu())) << name;
  }
}

}  // namespace checkpoint_test
