// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/base/mapped_file.h"
#include "trireme/interop/named_array.h"
#include "trireme/interop/torch_file.h"

// Compares what we read with what make_fixtures.py tells of the same file.
namespace trireme::interop::testing {

inline const std::string kFixtures = trireme::testing::source_path("/tests/interop/fixtures/");

inline nlohmann::json told(const std::string& path) {
  return nlohmann::json::parse(read_file(path));
}

inline std::string hex_of(std::span<const uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}
inline std::string hex_of(const NamedArray& array) {
  std::vector<uint8_t> elements(array.bytes());
  const MappedFile file(array.file);
  copy_elements(array, file.bytes(), elements);
  return hex_of(elements);
}

inline void expect_plain(const Tree& tree, NodeId id, const nlohmann::json& expected,
                         const std::string& name) {
  const Node& node = tree[id];
  switch (node.kind) {
    case Kind::none:
      EXPECT_TRUE(expected.is_null()) << name;
      break;
    case Kind::boolean:
      EXPECT_EQ(nlohmann::json(node.integer != 0), expected) << name;
      break;
    case Kind::integer:
      EXPECT_EQ(nlohmann::json(node.integer), expected) << name;
      break;
    case Kind::real:
      EXPECT_EQ(nlohmann::json(node.real), expected) << name;
      break;
    case Kind::text:
      EXPECT_EQ(nlohmann::json(node.text), expected) << name;
      break;
    default:
      ADD_FAILURE() << name << " is " << tree.described(id);
  }
}

/// Every tensor that the JSON tells, to the bit; every value, if `values`.
inline void expect_as_told(const TorchFile& file, const nlohmann::json& expected,
                           bool values = true) {
  size_t seen = 0;
  for (const NamedArray& array : file.arrays()) {
    if (!expected["tensors"].contains(array.name)) continue;
    const auto& tensor = expected["tensors"][array.name];
    EXPECT_EQ(array.dtype, tensor["dtype"].get<std::string>()) << array.name;
    EXPECT_EQ(array.shape, tensor["shape"].get<std::vector<int64_t>>()) << array.name;
    EXPECT_EQ(hex_of(array), tensor["hex"].get<std::string>()) << array.name;
    ++seen;
  }
  EXPECT_EQ(seen, expected["tensors"].size());
  if (!values) return;
  size_t plain = 0;
  for (const NamedNode& value : file.values()) {
    ASSERT_TRUE(expected["values"].contains(value.name)) << value.name;
    expect_plain(file.tree(), value.node, expected["values"][value.name], value.name);
    ++plain;
  }
  EXPECT_EQ(plain, expected["values"].size());
}

}  // namespace trireme::interop::testing
