// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/encoding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/philox.h"

namespace trireme::encoding_test {
namespace {

enum class Colour : uint8_t { red, green };

struct Leaf {
  int32_t id = 0;
  std::string name;
  bool operator==(const Leaf&) const = default;
  TRIREME_FIELDS(id, name)
};

struct Tree {
  Leaf own;
  std::vector<Tree> children;
  std::map<std::string, double> weights;
  std::optional<int64_t> limit;
  Colour colour = Colour::red;
  bool operator==(const Tree&) const = default;
  TRIREME_FIELDS(own, children, weights, limit, colour)
};

Tree example() {
  Tree t;
  t.own = {7, "root"};
  t.weights = {{"a", 0.5}, {"b", -std::numeric_limits<double>::infinity()}};
  t.limit = -3;
  t.colour = Colour::green;
  t.children.resize(2);
  t.children[1].own = {-1, std::string("\0x", 2)};
  return t;
}

template <class T>
void there_and_back(const T& value) {
  EXPECT_EQ(decode<T>(encode(value)), value) << encoding::type_text<T>();
}

TEST(base_encoding, values_come_back_as_they_were) {
  there_and_back(int8_t{-5});
  there_and_back(uint64_t{1} << 63);
  there_and_back(true);
  there_and_back(Colour::green);
  there_and_back(std::string(100000, 'x'));
  there_and_back(std::string());
  there_and_back(std::vector<float>{1.5f, -0.0f});
  there_and_back(std::vector<bool>{true, false, true});
  there_and_back(std::vector<std::vector<std::string>>{{}, {"a", ""}});
  there_and_back(std::array<int16_t, 3>{1, 2, 3});
  there_and_back(std::set<int>{3, 1, 2});
  there_and_back(std::unordered_map<int, std::string>{{1, "one"}, {2, "two"}});
  there_and_back(std::tuple<int, std::string, std::pair<bool, double>>{1, "x", {false, 2.5}});
  there_and_back(std::optional<std::string>());
  there_and_back(example());
}

TEST(base_encoding, floating_values_keep_their_bits) {
  uint64_t bits = 0x7ff8dead0000beefu;
  double nan, back;
  std::memcpy(&nan, &bits, sizeof nan);
  back = decode<double>(encode(nan));
  EXPECT_EQ(std::memcmp(&back, &nan, sizeof nan), 0);
}

TEST(base_encoding, another_type_is_a_mismatch_that_names_both) {
  try {
    decode<std::vector<int32_t>>(encode(std::map<std::string, int32_t>{{"a", 1}}));
    FAIL() << "not refused";
  } catch (const Mismatch& e) {
    EXPECT_NE(std::string(e.what()).find("{str:i32}"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("[i32]"), std::string::npos) << e.what();
  }
  EXPECT_THROW(decode<int64_t>(encode(int32_t{1})), Mismatch);
}

TEST(base_encoding, a_newer_version_is_refused_naming_both) {
  std::string bytes = encode(1);
  bytes[4] = 9;
  try {
    decode<int>(bytes);
    FAIL() << "not refused";
  } catch (const Mismatch& e) {
    EXPECT_NE(std::string(e.what()).find("version 9"), std::string::npos) << e.what();
  }
}

// Every prefix, and many mutations: a value or an error, never anything else, and no large
// allocation.
TEST(base_encoding, damaged_bytes_are_errors) {
  const std::string good = encode(example());
  for (size_t n = 0; n < good.size(); ++n)
    EXPECT_THROW(decode<Tree>(std::string_view(good).substr(0, n)), Error) << n;
  EXPECT_THROW(decode<Tree>(good + "x"), Corrupt);
  int refused = 0;
  for (uint64_t k = 0; k < 20000; ++k) {
    std::string bytes = good;
    for (uint64_t j = 0; j <= k % 3; ++j) {
      const uint64_t r = mix64(k * 4 + j);
      bytes[r % bytes.size()] = static_cast<char>(r >> 32);
    }
    try {
      decode<Tree>(bytes);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(base_encoding, bytes_that_nest_without_end_do_not_exhaust_the_stack) {
  Tree t;
  for (int i = 0; i < 300; ++i) {
    Tree outer;
    outer.children.push_back(t);
    t = outer;
  }
  EXPECT_THROW(decode<Tree>(encode(t)), Corrupt);
}

TEST(base_encoding, version_1_is_read_as_it_was_written) {
  const std::string fixture =
      read_file(trireme::testing::source_path("/tests/formats/codec-v1.bin"));
  EXPECT_EQ(decode<Tree>(fixture), example());
  EXPECT_EQ(encode(example()), fixture);
}

}  // namespace
}  // namespace trireme::encoding_test
