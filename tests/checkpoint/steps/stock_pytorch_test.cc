// SPDX-License-Identifier: Apache-2.0
// Sharded steps of ours, opened by stock PyTorch (2.8 and later), which knows nothing of us.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/interop/told.h"
#include "tests/support/command.h"
#include "trireme/checkpoint/steps/step_reader.h"

namespace trireme::test::stock_pytorch_test {
namespace {

using trireme::interop::testing::hex_of;
using trireme::interop::testing::told;
using trireme::testing::Command;

TEST(checkpoint_steps_stock_pytorch, the_fixture_of_version_3_is_read_to_the_bit) {
  const std::string folder = TRIREME_SOURCE_DIR "/tests/formats/checkpoint-v3";
  PrivateFolder out;
  Command python({"/usr/bin/python3", TRIREME_SOURCE_DIR "/tests/interop/dcp_2x.py", "read", folder,
                  out / "told.json"});
  const int status = python.finish(std::chrono::seconds(120));
  if (status == 77 || status == 127)
    GTEST_SKIP() << (python.out.empty() ? "python3 is not installed" : python.out);
  ASSERT_EQ(status, 0) << python.err;
  const auto found = told(out / "told.json")["tensors"];
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
