// SPDX-License-Identifier: Apache-2.0
// Random bytes for the parsers of what strangers may send (tests/fuzz/targets.h), mutated from the
// corpus. scripts/soak runs it:
//   soak_parsers --seed 7 [--inputs 20000]
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <random>
#include <string>

#include "tests/fuzz/mutate.h"
#include "tests/fuzz/targets.h"

namespace trireme::fuzz {
namespace {

int run(int argc, char** argv) {
  uint64_t seed = 1, inputs = 20000;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    uint64_t* into = word == "--seed" ? &seed : word == "--inputs" ? &inputs : nullptr;
    char* end = nullptr;
    if (into && i + 1 < argc) *into = std::strtoull(argv[++i], &end, 10);
    if (!end || end == argv[i] || *end != 0) {
      fmt::print(stderr, "soak_parsers: '{}' is not understood: use --seed N and --inputs N\n",
                 word);
      return 2;
    }
  }
  std::mt19937_64 random(seed);
  for (const Target& target : kTargets) {
    const auto corpus = corpus_of(target.name);
    for (uint64_t i = 0; i < inputs; ++i) {
      const std::string bytes = mutated(corpus[random() % corpus.size()], corpus, random);
      try {
        target.run(bytes);
      } catch (const std::exception& error) {
        std::string hex;
        for (unsigned char c : bytes) hex += fmt::format("{:02x}", c);
        fmt::print(stderr, "soak_parsers: target {}, seed {}, input {}: {}; the bytes: {}\n",
                   target.name, seed, i, error.what(), hex);
        return 1;
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace trireme::fuzz

int main(int argc, char** argv) { return trireme::fuzz::run(argc, argv); }
