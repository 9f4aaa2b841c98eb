// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/checkpoint/test_state.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/checksum.h"

namespace safetensors_test {

using namespace trireme;
using namespace trireme::test;

namespace {

std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

// The message of the refusal of a file with these bytes.
std::string refusal(const std::string& bytes) {
  PrivateFolder folder;
  spill(folder / "x.safetensors", bytes);
  return message_of<Corrupt>([&] { SafetensorsFile file(folder / "x.safetensors"); });
}

}  // namespace

TEST(checkpoint_safetensors, all_dtypes_and_shapes_come_back_as_they_were) {
  PrivateFolder folder;
  NamedTensors tensors;
  for (auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                     at::kShort, at::kChar, at::kByte, at::kBool}) {
    const std::string name = c10::toString(dtype);
    tensors.emplace_back(name, at::arange(6, at::kInt).view({2, 3}).to(dtype));
    tensors.emplace_back(name + ".scalar", at::ones({}, at::kInt).to(dtype));
    tensors.emplace_back(name + ".empty", at::zeros({2, 0, 3}, at::kInt).to(dtype));
  }
  tensors.emplace_back("transposed", at::arange(6, at::kFloat).view({2, 3}).t());
  tensors.emplace_back("name with \"quotes\" and ü", at::ones({1}));
  const auto receipt =
      write_safetensors(folder / "x", tensors, {{"format", "pt"}, {"key", "välue"}});

  SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.entries().size(), tensors.size());
  EXPECT_EQ(file.metadata().at("key"), "välue");
  EXPECT_EQ(receipt.size, file.size());
  EXPECT_EQ(receipt.head_checksum, Checksum::of(file.head().data(), file.head().size()));
  for (const auto& [name, t] : tensors) {
    at::Tensor back = file.tensor(name);
    EXPECT_EQ(back.scalar_type(), t.scalar_type()) << name;
    EXPECT_TRUE(back.equal(t)) << name;
    const auto bytes = file.bytes(*file.find(name));
    EXPECT_EQ(receipt.tensor_checksums.at(name), Checksum::of(bytes.data(), bytes.size()));
  }
  EXPECT_THROW(file.tensor("absent"), UsageError);
}

TEST(checkpoint_safetensors, empty_files_have_upstreams_bytes) {
  PrivateFolder folder;
  write_safetensors(folder / "a", {});
  EXPECT_EQ(slurp(folder / "a"), std::string("\x08\0\0\0\0\0\0\0", 8) + "{}      ");
  write_safetensors(folder / "b", {}, {{"framework", "pt"}});
  EXPECT_EQ(slurp(folder / "b"), std::string("\x28\0\0\0\0\0\0\0", 8) +
                                     "{\"__metadata__\":{\"framework\":\"pt\"}}     ");
}

TEST(checkpoint_safetensors, data_is_sorted_by_alignment_then_name_and_begins_aligned) {
  PrivateFolder folder;
  write_safetensors(folder / "x", {{"byte", at::ones({3}, at::kByte)},
                                   {"b", at::ones({2}, at::kFloat)},
                                   {"a", at::ones({1}, at::kFloat)},
                                   {"long", at::ones({1}, at::kLong)}});
  SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.head().size() % 8, 0u);
  std::vector<std::string> order;
  for (const auto& e : file.entries()) order.push_back(e.name);
  EXPECT_EQ(order, (std::vector<std::string>{"long", "a", "b", "byte"}));
}

TEST(checkpoint_safetensors, what_cannot_be_written_is_refused) {
  PrivateFolder folder;
  const auto one = at::ones({1});
  EXPECT_THROW(write_safetensors(folder / "a", {{"x", one}, {"x", one}}), UsageError);
  EXPECT_THROW(write_safetensors(folder / "b", {{"__metadata__", one}}), UsageError);
  EXPECT_THROW(write_safetensors(folder / "c", {{"x", at::ones({1}, at::kComplexFloat)}}),
               UsageError);
  EXPECT_THROW(write_safetensors(folder / "d", {{"\xff", one}}), UsageError);
  EXPECT_THROW(write_safetensors(folder / "no/such/folder", {{"x", one}}), ResourceError);
}

TEST(checkpoint_safetensors, a_file_that_is_not_there_or_not_a_file_is_a_usage_error) {
  PrivateFolder folder;
  EXPECT_THROW(SafetensorsFile(folder / "absent"), UsageError);
  EXPECT_THROW(SafetensorsFile(folder.path()), UsageError);
}

TEST(checkpoint_safetensors, every_kind_of_damage_is_named) {
  const std::string eight(8, 'x');
  auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
           offsets + "}}";
  };
  EXPECT_EQ(refusal(file_of(one("F32", "[2]", "[0,8]"), eight)), "");
  EXPECT_TRUE(contains(refusal(""), "too few"));
  EXPECT_TRUE(contains(refusal("short"), "too few"));
  EXPECT_TRUE(contains(refusal(file_of("{}", "").substr(0, 9)), "ends inside its header"));
  EXPECT_TRUE(contains(refusal("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "the most is 100000000"));
  EXPECT_TRUE(contains(refusal(file_of(" {}", "")), "does not begin with"));
  EXPECT_TRUE(contains(refusal(file_of("", "")), "does not begin with"));
  EXPECT_TRUE(contains(refusal(file_of("{", "")), "not JSON"));
  EXPECT_TRUE(contains(refusal(file_of("{}x", "")), "not JSON"));
  EXPECT_TRUE(contains(refusal(file_of("{\"\xff\":1}", "")), "not JSON"));
  EXPECT_TRUE(contains(refusal(file_of("{\"a\":" + std::string(100'000, '['), "")), "nested"));
  EXPECT_TRUE(contains(refusal(file_of(R"({"__metadata__":{"a":1}})", "")), "__metadata__"));
  EXPECT_TRUE(contains(refusal(file_of(R"({"w":1})", "")), "'w'"));
  EXPECT_TRUE(contains(refusal(file_of(one("F31", "[2]", "[0,8]"), eight)), "F31"));
  EXPECT_TRUE(contains(refusal(file_of(one("F32", "[3]", "[0,8]"), eight)), "its shape needs 12"));
  EXPECT_TRUE(contains(refusal(file_of(one("F32", "[-2]", "[0,8]"), eight)), "shape"));
  EXPECT_TRUE(contains(refusal(file_of(one("F32", "[2.0]", "[0,8]"), eight)), "shape"));
  EXPECT_TRUE(
      contains(refusal(file_of(one("F32", "[18446744073709551615]", "[0,8]"), eight)), "shape"));
  EXPECT_TRUE(
      contains(refusal(file_of(one("F32", "[4611686018427387904,4]", "[0,0]"), "")), "2^64"));
  EXPECT_TRUE(contains(refusal(file_of(one("F32", "[2]", "[8,0]"), eight)), "data_offsets"));
  EXPECT_TRUE(contains(refusal(file_of(one("F32", "[2]", "[0,8,9]"), eight)), "data_offsets"));
  EXPECT_TRUE(
      contains(refusal(file_of(one("F32", "[2]", "[4,12]"), eight + "1234")), "begins at byte 4"));
  EXPECT_TRUE(contains(refusal(file_of(one("F32", "[2]", "[0,8]"), "1234")), "cut short"));
  EXPECT_TRUE(
      contains(refusal(file_of(one("F32", "[2]", "[0,8]"), eight + "1")), "9 bytes of data"));
  EXPECT_TRUE(contains(refusal(file_of(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                       R"("w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                                       "")),
                       "key 'w' occurs twice"));
  EXPECT_TRUE(contains(refusal(file_of(R"({"__metadata__":{},"w":{"dtype":"U8","shape":[8],)"
                                       R"("data_offsets":[0,8]},"__metadata__":{}})",
                                       eight)),
                       "key '__metadata__' occurs twice"));
  EXPECT_TRUE(contains(refusal(file_of(R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                                       R"("b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})",
                                       eight)),
                       "begins at byte 3"));
}

TEST(checkpoint_safetensors, a_mutated_file_is_corrupt_or_reads_within_its_bounds) {
  PrivateFolder folder;
  write_safetensors(folder / "seed",
                    {{"w", at::arange(6, at::kFloat).view({2, 3})},
                     {"b", at::ones({4}, at::kByte)},
                     {"e", at::empty({0})}},
                    {{"format", "pt"}});
  const std::string seed = slurp(folder / "seed");
  const std::string pieces[] = {"-1",
                                "99999999999999999999",
                                "18446744073709551615",
                                "[[[[[[",
                                "{\"",
                                "null",
                                "1e999",
                                "[0,0]",
                                "\"F64\"",
                                "\\u0000",
                                "\"w\":",
                                ","};
  std::mt19937 random(1);
  auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  int refused = 0, read = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = seed;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t at = below(bytes.size());
      switch (below(5)) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
          break;
        case 2:
          bytes.insert(at, pieces[below(std::size(pieces))]);
          break;
        case 3:
          bytes.erase(at, 1 + below(6));
          break;
        case 4:
          bytes.resize(std::max<size_t>(1, at));
          break;
      }
      if (bytes.empty()) bytes = "x";
    }
    spill(folder / "mutant", bytes);
    try {
      SafetensorsFile file(folder / "mutant");
      for (const auto& entry : file.entries())
        ASSERT_LE(file.tensor(entry.name).nbytes(), bytes.size());
      ++read;
    } catch (const Corrupt& e) {
      ASSERT_TRUE(contains(e.what(), folder / "mutant"));
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 50);  // edits of data and of names are not visible to the format
}

}  // namespace safetensors_test
