// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/config_words.h"

#include <gtest/gtest.h>

#include "tests/support/refusals.h"

namespace trireme::testing::config_words_test {
namespace {

using Words = std::vector<std::string>;

struct Told {
  ConfigWords read;
  std::string out, resume = "not given";
  bool force = false;
};

Told told(const Words& words) {
  Told t;
  t.read = read_config_words(
      "tell", "tell --help",
      {{"--out-file", OwnFlag::a_value, [&](const std::string& v) { t.out = v; }},
       {"--steps", OwnFlag::a_value, {}, {}, "training.steps"},
       {"--force", OwnFlag::nothing, [&](const std::string&) { t.force = true; }},
       {"--resume", OwnFlag::perhaps_a_value, [&](const std::string& v) { t.resume = v; },
        [](const std::string& word) { return word == "auto"; }}},
      words);
  return t;
}

std::string refused(const Words& words) {
  return refusal([&] { told(words); });
}

TEST(front_config_words, files_sets_and_flags_are_told_apart) {
  const Told t = told({"a.json", "--set", "x=1", "--out_file=o=1", "b.json", "--force", "--steps",
                       "5", "--set=training.steps=7"});
  EXPECT_EQ(t.read.files, (Words{"a.json", "b.json"}));
  EXPECT_EQ(t.read.sets, (Words{"x=1", "training.steps=5", "training.steps=7"}));
  EXPECT_EQ(t.out, "o=1");
  EXPECT_TRUE(t.force);
  EXPECT_FALSE(t.read.help);
  EXPECT_EQ(t.resume, "not given");
}

TEST(front_config_words, a_value_that_may_be_left_out_is_taken_only_if_it_is_one) {
  EXPECT_EQ(told({"--resume", "auto"}).resume, "auto");
  const Told config = told({"--resume", "a.json"});
  EXPECT_EQ(config.resume, "");
  EXPECT_EQ(config.read.files, Words{"a.json"});
  EXPECT_EQ(told({"--resume=a.json"}).resume, "a.json");
  EXPECT_EQ(told({"--resume"}).resume, "");
}

TEST(front_config_words, help_ends_the_reading) {
  for (const char* word : {"-h", "--help"}) {
    const Told t = told({"a.json", word, "--none"});
    EXPECT_TRUE(t.read.help);
    EXPECT_EQ(t.read.files.size(), 1u);
  }
}

TEST(front_config_words, what_is_wrong_is_said_with_the_nearest_flag) {
  EXPECT_EQ(refused({"--forec"}),
            "tell: there is no flag --forec: did you mean --force?; 'tell --help' lists them");
  EXPECT_EQ(refused({"--nproc-per-nod", "2"}),
            "tell: there is no flag --nproc-per-nod: did you mean --nproc-per-node?; 'tell --help' "
            "lists them");
  EXPECT_EQ(refused({"--set"}), "tell: --set needs a value");
  EXPECT_EQ(refused({"--out-file"}), "tell: --out-file needs a value");
  EXPECT_EQ(refused({"--force=1"}), "tell: --force takes no value");
}

}  // namespace
}  // namespace trireme::testing::config_words_test
