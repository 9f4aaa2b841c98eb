// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/job/shell_words.h"

#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace trireme::job::shell_words_test {
namespace {

TEST(front_shell_words, what_is_special_is_quoted_and_the_rest_is_not) {
  EXPECT_EQ(shell_word("examples/gpt.json"), "examples/gpt.json");
  EXPECT_EQ(shell_word("--set=a.b=5e-4,c:d@e%f+g"), "--set=a.b=5e-4,c:d@e%f+g");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("~"), "'~'");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's"), R"('it'\''s')");
  EXPECT_EQ(shell_word("a\nb'\\"), R"($'a\nb\'\\')");
  EXPECT_EQ(shell_word("\x01"
                       "f"),
            R"($'\x01f')");
}

TEST(front_shell_words, bash_reads_every_byte_as_it_was_and_no_word_has_a_second_line) {
  std::vector<std::string> words{"$HOME",
                                 "`id`",
                                 "$(id)",
                                 "a;b|c&d",
                                 "*?[]{}",
                                 "!x",
                                 "\"x\" 'y'",
                                 "\\n",
                                 "#SBATCH",
                                 "-n",
                                 "\n#SBATCH --uid=0\n",
                                 "größe 🛶",
                                 "x\r\ny",
                                 "tab\there",
                                 "end\n",
                                 "a\\",
                                 "$'x'",
                                 "=",
                                 "~root",
                                 "a b  c "};
  std::string every;
  for (int byte = 1; byte < 256; ++byte) every += static_cast<char>(byte);
  words.push_back(every);
  std::string script = "printf '%s\\0'", expected;
  for (const std::string& word : words) {
    const std::string quoted = shell_word(word);
    EXPECT_EQ(quoted.find_first_of("\n\r"), std::string::npos) << quoted;
    script += " " + quoted;
    expected += word + '\0';
  }
  testing::Command bash({"bash", "-c", script});
  ASSERT_EQ(bash.finish(), 0) << bash.err;
  EXPECT_EQ(bash.out, expected);
}

}  // namespace
}  // namespace trireme::job::shell_words_test
