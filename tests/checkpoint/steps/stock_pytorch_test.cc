// SPDX-License-Identifier: Apache-2.0
// Sharded steps of ours, opened by stock PyTorch (2.8 and later), which knows nothing of us.
#include "tests/checkpoint/steps/stock_pytorch.h"

#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/step_reader.h"

namespace trireme::test::stock_pytorch_test {
namespace {

using trireme::interop::testing::hex_of;

TEST(checkpoint_steps_stock_pytorch, the_fixture_of_version_3_is_read_to_the_bit) {
  const std::string folder = trireme::testing::source_path("/tests/formats/checkpoint-v3");
  std::string why;
  const auto read = read_by_stock_pytorch(folder, &why);
  if (!read) GTEST_SKIP() << why;
  const nlohmann::json& found = *read;
  StepReader step(folder);
  EXPECT_EQ(found.size(), step.index().tensors.size());
  for (const auto& [name, saved] : step.index().tensors) {
    const std::string key = place_of(name).key;
    ASSERT_TRUE(found.contains(key)) << key;
    EXPECT_EQ(found[key]["dtype"], saved.dtype) << key;
    EXPECT_EQ(found[key]["shape"].get<std::vector<int64_t>>(), saved.shape()) << key;
    int64_t numel = 1;
    for (int64_t n : saved.shape()) numel *= n;
    EXPECT_EQ(found[key]["hex"], hex_of(step.read(name, 0, numel))) << key;
  }
}

}  // namespace
}  // namespace trireme::test::stock_pytorch_test
