// SPDX-License-Identifier: Apache-2.0
// The fuzz targets without libFuzzer: over their corpus, and over random mutations of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "tests/fuzz/targets.h"
#include "trireme/base/file.h"

namespace trireme::corpus_test {
namespace {

namespace fs = std::filesystem;

class fuzz_corpus : public ::testing::TestWithParam<fuzz::Target> {
 protected:
  static std::vector<std::string> corpus() {
    std::vector<std::string> paths, out;
    for (const auto& entry : fs::directory_iterator(
             std::string(TRIREME_SOURCE_DIR "/tests/fuzz/corpus/") + GetParam().name))
      paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const auto& path : paths) out.push_back(read_file(path));
    return out;
  }
};

std::string mutated(std::string bytes, const std::vector<std::string>& corpus,
                    std::mt19937_64& random) {
  for (int n = 1 + random() % 4; n > 0; --n) {
    size_t at = bytes.empty() ? 0 : random() % bytes.size();
    switch (random() % 6) {
      case 0:
        if (!bytes.empty()) bytes[at] ^= static_cast<char>(1u << random() % 8);
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.insert(at, random() % 8 + 1, static_cast<char>(random()));
        break;
      case 3:
        bytes.erase(at, random() % 16);
        break;
      case 4:
        for (int i = 0; i < 4 && at + i < bytes.size(); ++i)
          bytes[at + i] = random() % 2 ? '\xff' : '\0';
        break;
      case 5: {
        const auto& other = corpus[random() % corpus.size()];
        bytes.insert(at, other.substr(random() % (other.size() + 1), random() % 100));
        break;
      }
    }
  }
  return bytes;
}

}  // namespace

TEST_P(fuzz_corpus, is_taken) {
  ASSERT_GE(corpus().size(), 2u);
  for (const auto& bytes : corpus()) EXPECT_NO_THROW(GetParam().run(bytes));
}

TEST_P(fuzz_corpus, mutated_is_taken) {
  auto seeds = corpus();
  std::mt19937_64 random(1);
  for (int round = 0; round < 5000; ++round) {
    auto bytes = mutated(seeds[random() % seeds.size()], seeds, random);
    ASSERT_NO_THROW(GetParam().run(bytes)) << "round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(, fuzz_corpus, ::testing::ValuesIn(fuzz::kTargets),
                         [](const auto& info) { return info.param.name; });

}  // namespace trireme::corpus_test
