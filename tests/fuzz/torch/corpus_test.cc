// SPDX-License-Identifier: Apache-2.0
// The fuzz targets that have tensors, over their corpus and over random mutations of it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/torch/rpc_targets.h"
#include "tests/support/captured_log.h"

namespace trireme::torch_corpus_test {
namespace {

class fuzz_torch_corpus : public ::testing::TestWithParam<fuzz::TorchTarget> {
 protected:
  static std::vector<std::string> corpus() { return fuzz::corpus_of(GetParam().name); }
  testing::CapturedLog log;  // of workers that are lost
};

}  // namespace

TEST_P(fuzz_torch_corpus, is_taken) {
  ASSERT_GE(corpus().size(), 2u);
  for (const auto& bytes : corpus()) EXPECT_NO_THROW(GetParam().run(bytes));
}

TEST_P(fuzz_torch_corpus, mutated_is_taken) {
  const auto seeds = corpus();
  const int rounds = std::getenv("TRIREME_SOAK") ? 20'000 : 2000;
  std::mt19937_64 random(1);
  for (int round = 0; round < rounds; ++round) {
    const auto bytes = fuzz::mutated(seeds[random() % seeds.size()], seeds, random);
    ASSERT_NO_THROW(GetParam().run(bytes)) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(, fuzz_torch_corpus, ::testing::ValuesIn(fuzz::kTorchTargets),
                         [](const auto& info) { return info.param.name; });

}  // namespace trireme::torch_corpus_test
