// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/json_reader.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/philox.h"

namespace json_reader_test {

using namespace trireme;
using Kind = Value::Kind;

namespace {

std::string error_of(std::string_view text) {
  try {
    read_json("f.json", text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool begins(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }

}  // namespace

TEST(config_json_reader, reads_every_kind_of_value) {
  auto root = read_json("f", R"({"a": [null, true, false, -3, 2.5, "x"], "b": {}})");
  const auto& a = root.find("a")->array;
  ASSERT_EQ(a.size(), 6u);
  EXPECT_TRUE(a[0].is(Kind::null));
  EXPECT_TRUE(a[1].boolean);
  EXPECT_TRUE(a[2].is(Kind::boolean) && !a[2].boolean);
  EXPECT_EQ(a[3].integer, -3);
  EXPECT_EQ(a[4].number, 2.5);
  EXPECT_EQ(a[5].string, "x");
  EXPECT_TRUE(root.find("b")->is(Kind::object));
  EXPECT_EQ(root.find("c"), nullptr);
}

TEST(config_json_reader, every_value_knows_its_line_and_column) {
  auto root = read_json("f.json", "{\n  \"a\": 1,\n  \"é\": [10,\n    20]\n}");
  EXPECT_EQ(root.origin.str(), "f.json:1:1");
  EXPECT_EQ(root.members[0].key_origin.str(), "f.json:2:3");
  EXPECT_EQ(root.members[0].value.origin.str(), "f.json:2:8");
  EXPECT_EQ(root.members[1].value.origin.str(), "f.json:3:8");  // é is one column
  EXPECT_EQ(root.members[1].value.array[1].origin.str(), "f.json:4:5");
  EXPECT_EQ(Origin{}.str(), "default");
}

TEST(config_json_reader, members_keep_their_order) {
  auto root = read_json("f", R"({"z": 1, "a": 2, "m": 3})");
  EXPECT_EQ(root.text(), R"({"z": 1, "a": 2, "m": 3})");
}

TEST(config_json_reader, takes_comments_trailing_commas_and_a_byte_order_mark) {
  auto root = read_json("f",
                        "\xEF\xBB\xBF# one\n{ // two\n \"a\" /* three\n */ : [1, 2,], # four\r\n"
                        "\"b\": \"// not # a /* comment\",\n}\n// five");
  EXPECT_EQ(root.text(), R"({"a": [1, 2], "b": "// not # a /* comment"})");
}

TEST(config_json_reader, integral_numbers_may_serve_as_integers) {
  auto integer = [](std::string_view text) {
    int64_t out = -1;
    return read_json("f", text).to_integer(&out) ? std::to_string(out) : std::string("no");
  };
  EXPECT_EQ(integer("5e8"), "500000000");
  EXPECT_EQ(integer("1.5e1"), "15");
  EXPECT_EQ(integer("1e14"), "100000000000000");
  EXPECT_EQ(integer("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(integer("9223372036854775808"), "no");  // beyond int64, and beyond what a double knows
  EXPECT_EQ(integer("1.5"), "no");
  EXPECT_EQ(integer("1e300"), "no");
  EXPECT_EQ(integer("\"5\""), "no");
}

TEST(config_json_reader, strings_take_escapes) {
  EXPECT_EQ(read_json("f", R"("a\n\t\"\\\/\u00e9\ud83d\ude00")").string, "a\n\t\"\\/é😀");
  EXPECT_NE(error_of(R"("\ud83d")"), "");
  EXPECT_NE(error_of(R"("\ude00")"), "");
  EXPECT_NE(error_of(R"("\u12g4")"), "");
  EXPECT_NE(error_of(R"("\x")"), "");
}

TEST(config_json_reader, a_key_given_twice_is_refused_with_both_places) {
  EXPECT_EQ(error_of("{\"lr\": 1,\n \"b\": 2,\n  \"lr\": 3}"),
            "f.json:3:3: the key \"lr\" is given twice (first at f.json:1:2); remove one");
  EXPECT_EQ(error_of(R"({"a": {"x": 1}, "b": {"x": 1}})"), "");
}

TEST(config_json_reader, mistakes_are_named_where_they_stand) {
  EXPECT_TRUE(begins(error_of(""), "f.json:1:1: the file is empty"));
  EXPECT_TRUE(begins(error_of("{\n \"a\": 1\n"), "f.json:1:1: this \"{\" is never closed"));
  EXPECT_TRUE(begins(error_of("[1, 2"), "f.json:1:1: this \"[\" is never closed"));
  EXPECT_TRUE(begins(error_of("{\"a\": CONFIG_CL_MIN}"),
                     "f.json:1:7: expected a value, found \"CONFIG_CL_MIN\""));
  EXPECT_TRUE(begins(error_of("{\"a\": True}"),
                     "f.json:1:7: expected a value, found \"True\"; JSON writes true"));
  EXPECT_TRUE(begins(error_of("{\"a\" 1}"), "f.json:1:6: expected \":\" after the key \"a\""));
  EXPECT_TRUE(begins(error_of("{a: 1}"), "f.json:1:2: expected a key in double quotes"));
  EXPECT_TRUE(begins(error_of("{\"a\": 1 \"b\": 2}"), "f.json:1:9: expected \",\" or \"}\""));
  EXPECT_TRUE(begins(error_of("{\"a\": 1}\n}"), "f.json:2:1: \"}\" after the end"));
  EXPECT_TRUE(begins(error_of("{\"a\": \"x\ny\"}"), "f.json:1:7: this string is never closed"));
  EXPECT_TRUE(begins(error_of("{} /* x"), "f.json:1:4: this /* comment is never closed"));
  EXPECT_TRUE(begins(error_of("{,}"), "f.json:1:2: expected a key"));
  EXPECT_TRUE(begins(error_of("[,]"), "f.json:1:2: expected a value"));
}

TEST(config_json_reader, numbers_that_are_none_are_refused) {
  for (auto text : {"01", "-", "1.", ".5", "1e", "1e+", "0x10", "1.2.3", "1_000", "+1", "NaN",
                    "Infinity", "-a", "1e999", "1e-999"})
    EXPECT_TRUE(begins(error_of(text), "f.json:1:1: ")) << text;
}

TEST(config_json_reader, bytes_that_are_not_utf8_are_refused) {
  for (auto bytes : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80"})
    EXPECT_NE(error_of("{\"a\": \"" + std::string(bytes) + "\"}").find("not valid UTF-8"),
              std::string::npos);
  EXPECT_TRUE(begins(error_of("// \xff\n{}"), "f.json:1:4: the byte 0xff is not valid UTF-8"));
  EXPECT_NE(error_of(std::string("\"a\0b\"", 5)), "");
}

TEST(config_json_reader, depth_size_and_count_are_bounded) {
  EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_NE(error_of(std::string(65, '[') + std::string(65, ']')).find("deeper than 64"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(1'000'000, '[')).find("deeper than 64"), std::string::npos);
  std::string many = "[";
  for (size_t i = 0; i < kConfigValueLimit; ++i) many += "1,";
  EXPECT_NE(error_of(many + "]").find("more than 100000 values"), std::string::npos);
  EXPECT_NE(error_of(std::string(kConfigFileLimit + 1, ' ')).find("at most"), std::string::npos);
}

TEST(config_json_reader, a_file_that_cannot_be_read_is_a_usage_error) {
  PrivateFolder folder;
  EXPECT_THROW(read_json_file(folder / "missing.json"), UsageError);
  EXPECT_THROW(read_json_file(folder.path()), UsageError);
  write_file_atomic(folder / "a.json", "{\"a\": }");
  try {
    read_json_file(folder / "a.json");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_TRUE(begins(error.what(), (folder / "a.json") + ":1:7: "));
  }
}

TEST(config_json_reader, text_reads_back_to_an_equal_tree) {
  auto root = read_json(
      "f",
      R"({"a": [1, 1.0, 1e-8, 0.1, 1e300, -0.0, 123456789012345678], "b\u0001\"": {"c": [[], {}]}})");
  EXPECT_EQ(read_json("f", root.text()), root);
  EXPECT_TRUE(read_json("f", Value::of(1000.0).text()).is(Kind::number));
}

// Bytes changed, inserted, removed, cut: the reader parses or throws UsageError, and what it parses
// survives its own text.
TEST(config_json_reader, survives_mutated_bytes) {
  const std::string seeds[] = {
      R"({"train_batch_size": 64, "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.9, 0.95]}}})",
      "{ // c\n \"a\": [1, 2.5e3, -4,], # d\n \"b\": /* x */ \"é\\u00e9\\n\", \"c\": {\"d\": null, "
      "\"e\": true}, }",
      "[[[[{\"a\":[{\"b\":[false]}]}]]],\"\\ud83d\\ude00\"]",
  };
  const char spice[] = "{}[]\",:\\/*#\n\t 0123456789.eE+-tfnu\xff\x80\xc3\xf0";
  int parsed = 0, refused = 0;
  for (uint64_t round = 0; round < 30'000; ++round) {
    std::string text = seeds[round % 3];
    auto dice = [&, i = uint64_t{0}](uint64_t n) mutable {
      auto block = philox_block(1, round, i++);
      return below(uint64_t{block[0]} << 32 | block[1], n);
    };
    for (uint64_t edits = 1 + dice(4); edits > 0 && !text.empty(); --edits) {
      size_t at = dice(text.size());
      char byte = dice(2) ? spice[dice(sizeof spice - 1)] : static_cast<char>(dice(256));
      switch (dice(4)) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        case 2:
          text.erase(at, 1 + dice(4));
          break;
        default:
          text.insert(at, text.substr(dice(text.size()), dice(12)));
          break;
      }
    }
    try {
      auto root = read_json("f.json", text);
      ++parsed;
      ASSERT_EQ(read_json("f.json", root.text()), root) << text;
    } catch (const UsageError& error) {
      ++refused;
      ASSERT_TRUE(begins(error.what(), "f.json:")) << error.what();
    }
  }
  EXPECT_GT(parsed, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace json_reader_test
