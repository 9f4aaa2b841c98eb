// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

// The corpus of a fuzz target, and random mutations of it, for programs without libFuzzer.
namespace trireme::fuzz {

inline std::vector<std::string> corpus_of(const std::string& target) {
  std::vector<std::string> paths, out;
  for (const auto& entry : std::filesystem::directory_iterator(
           trireme::testing::source_path("/tests/fuzz/corpus/") + target))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) out.push_back(read_file(path));
  return out;
}

inline std::string mutated(std::string bytes, const std::vector<std::string>& corpus,
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

}  // namespace trireme::fuzz
