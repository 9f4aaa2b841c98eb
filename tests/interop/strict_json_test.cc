// SPDX-License-Identifier: Apache-2.0
#include "trireme/interop/strict_json.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace strict_json_test {

using namespace trireme;
using nlohmann::json;

namespace {

/// "": it was taken.
std::string refusal(const std::string& text, int max_depth = 8) {
  try {
    parse_strict_json(text, "here", max_depth);
    return "";
  } catch (const Corrupt& e) {
    return e.what();
  }
}

/// What for_each_json_member() shows, and what is left.
std::string members(const std::string& text, int depth) {
  std::string shown;
  const json root = for_each_json_member(
      text, "here", 8, depth,
      [&](const json& so_far, const std::string& section, const std::string& name, const json& v) {
        EXPECT_TRUE(so_far.is_object());
        shown += section + "/" + name + "=" + v.dump() + " ";
      });
  return shown + root.dump();
}

}  // namespace

TEST(interop_strict_json, members_are_shown_one_by_one_and_forgotten) {
  EXPECT_EQ(members(R"({"b":{"x":[1]},"a":2,"c":[{"d":3}]})", 1),
            R"(/b={"x":[1]} /a=2 /c=[{"d":3}] {})");
  EXPECT_EQ(members(R"({"v":3,"t":{"q":{"x":[{"y":1}]},"p":7},"w":[{"z":{"k":1}}],"f":{}})", 2),
            R"(t/q={"x":[{"y":1}]} t/p=7 {"f":{},"t":{},"v":3,"w":[{"z":{"k":1}}]})");
  EXPECT_EQ(members(R"([{"a":{"b":1}}])", 2), R"([{"a":{"b":1}}])");
  EXPECT_EQ(members("7", 1), "7");
}

TEST(interop_strict_json, members_have_the_same_bounds) {
  const auto refusal_of = [](const std::string& text) -> std::string {
    try {
      members(text, 1);
      return "";
    } catch (const Corrupt& e) {
      return e.what();
    }
  };
  EXPECT_EQ(refusal_of(R"({"a":{"b":2,"b":3}})"), "here: key 'b' occurs twice");
  EXPECT_EQ(refusal_of(R"({"a":[[[[[[[[[1]]]]]]]]]})"), "here: nested more than 8 deep");
  EXPECT_EQ(refusal_of(R"({"a":1,"b")").rfind("here: not JSON (", 0), 0u);
}

// Of tens of thousands no name is kept: who is shown them keeps them, and refuses.
TEST(interop_strict_json, a_member_that_comes_again_is_shown_again) {
  EXPECT_EQ(members(R"({"a":1,"b":2,"a":3})", 1), "/a=1 /b=2 /a=3 {}");
}

TEST(interop_strict_json, how_many_values_there_are_at_once_is_bounded) {
  const auto list = [](size_t n) {
    std::string text = "[0";
    for (size_t i = 2; i < n; ++i) text += ",0";
    return text + "]";  // and itself
  };
  EXPECT_EQ(refusal(list(kMostJsonValues)), "");
  EXPECT_EQ(refusal(list(kMostJsonValues + 1)), "here: holds more than 2000000 values");
  // In all a text may have more.
  const std::string half = list(kMostJsonValues / 2 + 1);
  EXPECT_NE(members("{\"a\":" + half + ",\"b\":" + half + ",\"c\":" + half + "}", 1), "");
}

TEST(interop_strict_json, what_is_sound_is_read_as_by_the_json_library) {
  for (const char* text :
       {"null", "true", "-7", "18446744073709551615", "1.5e3", "\"a\\u00e9\\n\"", "[]", "{}",
        R"([1,[2,[3,{}]],{"a":[{"b":null},{"b":false}]},[]])",
        R"({"z":{"y":1,"x":[{},{"x":2}]},"a":[[],[[]]],"m":"","b":{"z":{"y":1}}})",
        R"(  {"a" : [ 1 , 2.0 ,"3" ] }  )"})
    EXPECT_EQ(parse_strict_json(text, "here", 8), json::parse(text)) << text;
}

TEST(interop_strict_json, a_key_twice_in_one_object_is_refused_and_in_two_it_is_not) {
  EXPECT_EQ(refusal(R"({"a":1,"b":2,"a":3})"), "here: key 'a' occurs twice");
  EXPECT_EQ(refusal(R"({"b":1,"a":2,"b":{}})"), "here: key 'b' occurs twice");
  EXPECT_EQ(refusal(R"([{"k":[{"x":1,"x":2}]}])"), "here: key 'x' occurs twice");
  EXPECT_EQ(refusal(R"({"a":{"a":{"a":1}},"b":{"a":1}})"), "");
}

TEST(interop_strict_json, nesting_is_bounded) {
  auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(refusal(nested(5), 4), "");
  EXPECT_EQ(refusal(nested(6), 4), "here: nested more than 4 deep");
  EXPECT_EQ(refusal(std::string(1'000'000, '['), 16), "here: nested more than 16 deep");
}

TEST(interop_strict_json, what_is_no_json_is_refused_with_the_place) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":}", "1 2", "\"\xff\"", "{'a':1}", "nul",
                           "[1e999]", "// x\n1", "\x01"}) {
    const std::string what = refusal(text);
    EXPECT_EQ(what.rfind("here: not JSON (", 0), 0u) << text << ": " << what;
  }
}

}  // namespace strict_json_test
