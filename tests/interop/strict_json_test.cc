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

}  // namespace

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
