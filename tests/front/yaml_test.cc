// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/job/yaml.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "trireme/base/error.h"

namespace trireme::job::yaml_test {
namespace {

using Json = nlohmann::ordered_json;

std::string shown(const std::string& text) {
  const std::string all = yaml_document({{"k", text}});
  return all.substr(3, all.size() - 4);
}

TEST(front_yaml, a_text_is_bare_only_where_no_reader_takes_it_for_something_else) {
  for (const char* bare : {"gpt", "/runs/gpt-2/x_1.json", "--set", "--nnodes=2", "a.b=5", "None1"})
    EXPECT_EQ(shown(bare), bare);
  for (const char* text :
       {"",     "1",    "0400", "1e3",   "1_000", "0x1f", "12:30:45", "2026-11-26", ".5",   "-1",
        "true", "True", "NO",   "n",     "on",    "Off",  "null",     "~",          "a: b", "a #b",
        "- a",  "-",    "--",   "---",   "*a",    "&a",   "!a",       "%a",         "@a",   "`a",
        "{a}",  "[a]",  "a,b",  "a b",   " a",    "a ",   "'a'",      "r.io/x:1",   "?",    "=",
        ".inf", "<<",   "$(A)", "-.inf", "64Gi",  ">",    "|"})
    EXPECT_EQ(shown(text), "\"" + std::string(text) + "\"") << text;
  EXPECT_EQ(shown("say \"a\\b\""), R"("say \"a\\b\"")");
  EXPECT_EQ(shown("größe"), "\"größe\"");
}

TEST(front_yaml, what_no_editor_shows_is_escaped) {
  EXPECT_EQ(shown("a\tb\r\x01\x7f"), R"("a\tb\x0d\x01\x7f")");
  EXPECT_EQ(shown("\xc2\x85"), R"("\x85")");        // a line break of YAML 1.1
  EXPECT_EQ(shown("\xe2\x80\xa8"), R"("\u2028")");  // another
  EXPECT_EQ(shown("\xef\xbb\xbf"), R"("\ufeff")");  // a byte order mark
  EXPECT_EQ(shown("\xf0\x9f\x9b\xb6"), "\"\xf0\x9f\x9b\xb6\"");
}

TEST(front_yaml, texts_of_several_lines_are_blocks_where_they_can_be) {
  EXPECT_EQ(shown("a\nb\n"), "|\n  a\n  b");
  EXPECT_EQ(shown("a\n\n b"), "|-\n  a\n\n   b");
  EXPECT_EQ(shown("a\n\n"), "|+\n  a\n");
  EXPECT_EQ(shown(" a\nb"), "\" a\\nb\"");
  EXPECT_EQ(shown("\na"), "\"\\na\"");
  EXPECT_EQ(shown("a\r\nb\n"), "\"a\\x0d\\nb\\n\"");
  EXPECT_EQ(shown("a\n   \nb"), "\"a\\n   \\nb\"");
}

TEST(front_yaml, bytes_that_are_no_utf_8_are_refused) {
  for (const char* bad : {"\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80",
                          "\xe2\x28\xa1", "\xe0\x80\x80"})
    EXPECT_THROW(shown(bad), UsageError) << bad;
}

TEST(front_yaml, maps_and_lists_are_indented_by_two) {
  const Json value{{"a", {{"b", 1}, {"c", Json::array()}}},
                   {"list", Json::array({1, "two", {{"x", true}, {"in", {{"z", nullptr}}}}})},
                   {"0", "key"}};
  EXPECT_EQ(yaml_document(value),
            "a:\n  b: 1\n  c: []\nlist:\n  - 1\n  - two\n  - x: true\n    in:\n      z: null\n"
            "\"0\": key\n");
}

/// Python's reader of YAML 1.1, where it is installed.
TEST(front_yaml, another_reader_gets_back_what_was_written) {
  testing::Command there({"python3", "-c", "import yaml"});
  if (there.finish() != 0) GTEST_SKIP() << "python3-yaml is not installed";
  Json texts = Json::array();
  for (const char* text : {"",
                           "1",
                           "0400",
                           "y",
                           "no",
                           "12:30:45",
                           "a: b",
                           "a #b",
                           "- a",
                           "$(A) $$",
                           "a\nb\n",
                           "a\nb",
                           "a\n\n",
                           "a\n\n\n",
                           " a\nb",
                           "\n",
                           "a\r\nb",
                           "a\tb",
                           "\xc2\x85",
                           "\xe2\x80\xa8",
                           "größe 🛶",
                           "\x01\x7f",
                           "#!/bin/sh\n# x: y\n---\n...\n",
                           "{\n  // c\n\t\"a\": 1,\n}\n",
                           "a\n \n",
                           "'\"",
                           "a\n#b",
                           "--set",
                           "2026-11-26",
                           "1e3",
                           "a:\nb: |\n c\n",
                           "end:",
                           "x\n  y\n"})
    texts.push_back(text);
  const Json value{{"texts", texts},
                   {"map", {{"a-b.c", "1"}, {"yes", Json::array({"x\ny\n", 2})}}}};
  PrivateFolder folder("yaml");
  write_file_atomic(folder / "a.yaml", yaml_document(value));
  testing::Command read({"python3", "-c",
                         "import json, sys, yaml\n"
                         "print(json.dumps(yaml.safe_load(open(sys.argv[1], encoding='utf-8'))))",
                         folder / "a.yaml"});
  ASSERT_EQ(read.finish(), 0) << read.err;
  EXPECT_EQ(Json::parse(read.out), value);
}

}  // namespace
}  // namespace trireme::job::yaml_test
