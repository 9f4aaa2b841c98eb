// SPDX-License-Identifier: Apache-2.0
// The fuzz targets without libFuzzer: over their corpus, and over random mutations of it.
#include <gtest/gtest.h>

#include <random>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"

namespace trireme::corpus_test {
namespace {

class fuzz_corpus : public ::testing::TestWithParam<fuzz::Target> {
 protected:
  static std::vector<std::string> corpus() { return fuzz::corpus_of(GetParam().name); }
};

}  // namespace

TEST_P(fuzz_corpus, is_taken) {
  ASSERT_GE(corpus().size(), 2u);
  for (const auto& bytes : corpus()) EXPECT_NO_THROW(GetParam().run(bytes));
}

TEST_P(fuzz_corpus, mutated_is_taken) {
  auto seeds = corpus();
  std::mt19937_64 random(1);
  for (int round = 0; round < 5000; ++round) {
    auto bytes = fuzz::mutated(seeds[random() % seeds.size()], seeds, random);
    ASSERT_NO_THROW(GetParam().run(bytes)) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(, fuzz_corpus, ::testing::ValuesIn(fuzz::kTargets),
                         [](const auto& info) { return info.param.name; });

}  // namespace trireme::corpus_test
