// SPDX-License-Identifier: Apache-2.0
// What an export and an import take of memory: a tensor or a few, never the whole.
#include <gtest/gtest.h>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/support/forked.h"
#include "tests/support/memory_limit.h"
#include "tests/support/sanitized.h"
#include "trireme/checkpoint/steps/exchange/export_weights.h"
#include "trireme/checkpoint/steps/exchange/import_weights.h"

namespace trireme::test::exchange_memory_test {
namespace {

constexpr int64_t kTensors = 24, kSide = 512;                 // of 1 MiB each
constexpr size_t kRoom = size_t{12} << 20, kTiny = 64 << 10;  // half of what the tensors have

/// Runs `body` with little more memory than there is; "": it was enough.
std::string within(size_t room, const std::function<void()>& body) {
  trireme::testing::ForkedChild child(trireme::testing::ChildEnd::exit_at_once, [&] {
    trireme::testing::limit_data(room);
    body();
    return std::string();
  });
  return child.ended(std::chrono::seconds(60));
}

TEST(checkpoint_steps_exchange_memory, is_that_of_a_few_tensors) {
  if (trireme::testing::kSanitized) GTEST_SKIP() << "a sanitizer's own memory is in the way";
  PrivateFolder folder;
  ExportPlan plan;
  {
    std::vector<WrittenTensor> tensors;
    for (int64_t i = 0; i < kTensors; ++i) {
      const std::string name = "w" + std::to_string(i);
      tensors.push_back({"model." + name, "F32", {kSide, kSide}, counted(kSide * kSide)});
      plan.tensors.push_back({"model." + name, name, i % 2 == 1});
    }
    write_test_step(folder / "run", 1, tensors);
  }
  StepReader step(folder / "run/step-00000001");
  EXPECT_EQ(within(kRoom,
                   [&] {
                     verify_exported(step, plan);
                     export_safetensors(step, plan, folder / "hf", uint64_t{5} << 20, false);
                   }),
            "");
  EXPECT_EQ(within(kRoom, [&] { export_torch(step, plan, folder / "x.pt", false); }), "");
  for (const char* from : {"hf", "x.pt"})
    EXPECT_EQ(within(kRoom,
                     [&] {
                       import_weights(interop::open_weights(folder / from),
                                      folder / (from + std::string("-run")), 0);
                     }),
              "")
        << from;
  // The limit is one: it is too little for a tensor.
  EXPECT_NE(within(kTiny, [&] { export_torch(step, plan, folder / "y.pt", false); }), "");
}

}  // namespace
}  // namespace trireme::test::exchange_memory_test
