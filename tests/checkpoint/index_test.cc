// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/index.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/checkpoint/test_state.h"
#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/steps/checksum.h"

namespace index_test {

using namespace trireme;
using namespace trireme::test;

namespace {

CheckpointIndex example() {
  CheckpointIndex index;
  index.step = 100;
  index.world = 2;
  index.files = {{"model.safetensors", {1234, "0123456789abcdef"}},
                 {"state.safetensors", {64, "fedcba9876543210"}}};
  index.tensors["model.w"] = {"F32",
                              {{Slice::whole("model.w", {2, 3}), "model.safetensors", {0xaa}}}};
  index.tensors["optim.m"] = {"F64", {{Slice::whole("optim.m", {}), "state.safetensors", {0xbb}}}};
  index.values = {{"i", std::numeric_limits<int64_t>::min()},
                  {"j", std::numeric_limits<int64_t>::max()},
                  {"d", 0.1},
                  {"whole", 3.0},
                  {"inf", -HUGE_VAL},
                  {"nan", std::nan("")},
                  {"s", "text\n\"ü\""},
                  {"raw", std::string("\xff\x00\x80", 3)}};
  return index;
}

/// Three ranks: a tensor in two parts, one in four boxes, one of more than a block.
CheckpointIndex split_example() {
  CheckpointIndex index = example();
  index.world = 3;
  index.layout = "zero stage 3, \"dp_shard\" 2";
  for (const char* file :
       {"model-rank00000.safetensors", "model-rank00001.safetensors", "state-rank00001.safetensors",
        "state-rank00001-2.safetensors", "state-rank00002.safetensors"})
    index.files[file] = {99, "0123456789abcdef"};
  auto part = [](const char* name, int64_t begin, int64_t length, const char* file) {
    return IndexPart{{name, {7}, {begin}, {length}}, file, {0xcc}};
  };
  index.tensors["model.p"] = {"F32",
                              {part("model.p", 0, 4, "model-rank00000.safetensors"),
                               part("model.p", 4, 3, "model-rank00001.safetensors")}};
  auto box = [](std::vector<int64_t> offsets, std::vector<int64_t> lengths, const char* file) {
    return IndexPart{{"optim.q", {4, 6}, std::move(offsets), std::move(lengths)}, file, {0xdd}};
  };
  index.tensors["optim.q"] = {"F32",
                              {box({0, 0}, {1, 2}, "state-rank00001.safetensors"),
                               box({1, 0}, {3, 2}, "state-rank00001-2.safetensors"),
                               box({0, 2}, {4, 4}, "state-rank00002.safetensors")}};
  index.tensors["optim.large"] = {
      "F32",
      {{Slice::whole("optim.large", {600'000}), "state-rank00001.safetensors", {1, 2, ~0ull}}}};
  return index;
}

/// What older versions wrote.
std::string text_of_version(int version) {
  return read_file(fmt::format("{}/tests/formats/checkpoint-v{}/trireme.index.json",
                               trireme::testing::source_path(), version));
}

// The text with its checksum made right again, so that what lies behind the checksum is tested.
std::string resealed(std::string text) {
  const std::string mark = "\"checksum\": \"xxh3:";
  const size_t at = text.find(mark) + mark.size();
  text.replace(at, 16, std::string(16, '0'));
  return text.replace(at, 16, Checksum::of(text.data(), text.size()));
}

std::string with(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return resealed(text.replace(at, what.size(), by));
}

std::string corruption(const std::string& text) {
  return message_of<Corrupt>([&] { parse_index(text, "INDEX"); });
}

}  // namespace

TEST(checkpoint_index, comes_back_as_it_was) {
  const auto index = example();
  const auto back = parse_index(index_text(index), "INDEX");
  EXPECT_EQ(back.step, 100);
  EXPECT_EQ(back.world, 2);
  EXPECT_EQ(back.layout, "replicated");
  EXPECT_EQ(back.files.at("model.safetensors").size, 1234u);
  EXPECT_EQ(back.tensors.at("model.w").parts.front().slice,
            index.tensors.at("model.w").parts.front().slice);
  EXPECT_EQ(back.tensors.at("optim.m").parts.front().blocks, std::vector<uint64_t>{0xbb});
  EXPECT_EQ(back.block, int64_t{1} << 20);
  for (const auto& [name, value] : index.values) {
    if (name == "nan")
      EXPECT_TRUE(std::isnan(std::get<double>(back.values.at(name))));
    else
      EXPECT_EQ(back.values.at(name), value) << name;
  }
}

TEST(checkpoint_index, parts_and_blocks_come_back_as_they_were) {
  const auto index = split_example();
  const std::string text = index_text(index);
  const auto back = parse_index(text, "INDEX");
  EXPECT_EQ(back.layout, index.layout);
  for (const auto& [name, t] : index.tensors) {
    const auto& got = back.tensors.at(name);
    EXPECT_EQ(got.dtype, t.dtype);
    ASSERT_EQ(got.parts.size(), t.parts.size());
    for (size_t i = 0; i < t.parts.size(); ++i) {
      EXPECT_EQ(got.parts[i].slice, t.parts[i].slice);
      EXPECT_EQ(got.parts[i].file, t.parts[i].file);
      EXPECT_EQ(got.parts[i].blocks, t.parts[i].blocks);
    }
  }
  EXPECT_EQ(index_text(back), text);
}

TEST(checkpoint_index, every_flipped_bit_is_detected) {
  for (const std::string& text :
       {index_text(example()), index_text(split_example()), text_of_version(1), text_of_version(2)})
    for (size_t i = 0; i < text.size(); ++i)
      for (int bit = 0; bit < 8; ++bit) {
        std::string flipped = text;
        flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
        EXPECT_THROW(parse_index(flipped, "INDEX"), Error) << "byte " << i << " bit " << bit;
      }
}

TEST(checkpoint_index, every_truncation_is_detected) {
  for (const std::string& text :
       {index_text(example()), index_text(split_example()), text_of_version(1), text_of_version(2)})
    for (size_t n = 0; n < text.size(); ++n) EXPECT_NE(corruption(text.substr(0, n)), "") << n;
}

TEST(checkpoint_index, a_newer_version_is_refused_naming_both) {
  const std::string newer = with(index_text(example()), "\"version\": 3", "\"version\": 12");
  const std::string text = message_of<UsageError>([&] { parse_index(newer, "INDEX"); });
  EXPECT_TRUE(contains(text, "INDEX") && contains(text, "version 12") &&
              contains(text, "version 3:"))
      << text;
  EXPECT_TRUE(contains(corruption(with(index_text(example()), "\"version\": 3", "\"version\": 0")),
                       "version 0"));
}

TEST(checkpoint_index, what_does_not_hold_together_is_named) {
  const std::string text = index_text(example());
  EXPECT_TRUE(contains(corruption("{}"), "magic"));
  EXPECT_TRUE(contains(corruption("[]"), "not a JSON object"));
  EXPECT_TRUE(
      contains(corruption(with(text, "trireme.checkpoint", "somebody.elses")), "not the index"));
  EXPECT_TRUE(contains(
      corruption(with(text_of_version(1), "\"layout\": \"replicated\"", "\"layout\": \"striped\"")),
      "striped"));
  EXPECT_TRUE(contains(corruption(with(text, "\"block\": 1048576", "\"block\": 0")), "no bytes"));
  EXPECT_TRUE(contains(
      corruption(with(text, "\"file\":\"model.safetensors\"", "\"file\":\"state.safetensors\"")),
      "'model.w'"));
  EXPECT_TRUE(
      contains(corruption(with(text, "\n \"model.safetensors\"", "\n \"../../etc/passwd\"")),
               "../../etc/passwd"));
  EXPECT_TRUE(contains(corruption(with(text, "\"offsets\":[0,0]", "\"offsets\":[1,0]")),
                       "do not fit into the size 2 of dim 0"));
  EXPECT_TRUE(contains(corruption(with(text, "\"shape\":[2,3]", "\"shape\":[2,-3]")), "shape"));
  EXPECT_TRUE(contains(corruption(with(text, "\"double\":0.1", "\"float\":0.1")), "value 'd'"));
  EXPECT_TRUE(
      contains(corruption(with(text, "\"hex\":\"ff0080\"", "\"hex\":\"ff008\"")), "hexadecimal"));
  EXPECT_TRUE(contains(corruption(with(text, "\"world\": 2", "\"step\": 2")), "occurs twice"));
}

TEST(checkpoint_index, a_name_twice_in_a_section_is_refused_and_named) {
  const std::string text = index_text(example());
  for (const std::string section : {"files", "tensors", "values"}) {
    const size_t begin = text.find("\"" + section + "\": {\n ") + section.size() + 6;
    const size_t end = text.find('\n', begin);
    std::string line = text.substr(begin, end - begin);
    if (line.back() == ',') line.pop_back();
    const std::string name = line.substr(2, line.find('"', 2) - 2);
    EXPECT_EQ(corruption(with(text, line, line + ",\n" + line)),
              "INDEX: key '" + name + "' occurs twice");
  }
  EXPECT_EQ(corruption(with(text, "\"values\": {", "\"files\": {},\n\"values\": {")),
            "INDEX: key 'files' occurs twice");
}

TEST(checkpoint_index, parts_that_do_not_hold_together_are_named) {
  const std::string text = index_text(split_example());
  const std::string second = "\"offsets\":[4],\"lengths\":[3]";
  auto refused = [&](const std::string& what, const std::string& by, const std::string& says) {
    const std::string got = corruption(with(text, what, by));
    EXPECT_TRUE(contains(got, says)) << by << ": " << got;
  };
  refused(second, "\"offsets\":[3],\"lengths\":[4]", "elements 3 to 3 are in two parts");
  refused(second, "\"offsets\":[5],\"lengths\":[2]", "elements 4 to 4 are in none");
  refused(second, "\"offsets\":[4],\"lengths\":[2]", "elements 6 to 6 are in none");
  refused(second, "\"offsets\":[4],\"lengths\":[4]", "do not fit into the size 7");
  refused(second, "\"offsets\":[4],\"lengths\":[9223372036854775807]", "do not fit");
  refused(second, "\"offsets\":[8],\"lengths\":[0]", "do not fit");
  refused(second, "\"offsets\":[],\"lengths\":[3]", "0 offsets and 1 lengths for 1 dims");
  refused(second, "\"offsets\":[4,0],\"lengths\":[3,1]", "2 offsets");
  refused("\"offsets\":[1,0],\"lengths\":[3,2]", "\"offsets\":[1,0],\"lengths\":[3,1]",
          "3 of 24 elements are in no part");
  refused("\"offsets\":[1,0],\"lengths\":[3,2]", "\"offsets\":[0,0],\"lengths\":[3,2]",
          "elements are in two parts, and others in none");
  refused("\"offsets\":[1,0],\"lengths\":[3,2]", "\"offsets\":[1,0],\"lengths\":[3,6]",
          "elements are in two parts");
  refused("state-rank00001-2.safetensors\",\"offsets\"",
          "state-rank00001.safetensors\",\"offsets\"", "two parts in file");
  refused("00000000000000cc", "00000000000000cg", "not hexadecimal");
  refused("00000000000000cc", "00000000000000c", "15 digits of checksums for 1 blocks");
  refused("0000000000000001", "", "32 digits of checksums for 3 blocks");
  refused("\"dtype\":\"F32\"", "\"dtype\":\"F31\"", "not one we read");
  refused("\"file\":\"state-rank00001", "\"file\":\"model-rank00001", "cannot lie in file");
  refused("\n \"state-rank00001.", "\n \"state-rank00007.", "is not listed");
  refused("\"shape\":[2,3]", "\"shape\":[4611686018427387904,3]", "2^63");
  refused("zero stage 3", "z\\u0001ro", "not known in version 3");
  refused("\"world\": 3", "\"world\": 0", "0 ranks");
  refused("\"version\": 3", "\"version\": 1", "not known in version 1");
}

TEST(checkpoint_index, parts_of_version_2_that_do_not_hold_together_are_named) {
  const std::string text = text_of_version(2);
  auto refused = [&](const std::string& what, const std::string& by, const std::string& says) {
    const std::string got = corruption(with(text, what, by));
    EXPECT_TRUE(contains(got, says)) << by << ": " << got;
  };
  const std::string second = "\"offsets\":[5],\"lengths\":[4]";
  refused(second, "\"offsets\":[4],\"lengths\":[5]", "elements 4 to 4 are in two parts");
  refused(second, "\"offsets\":[5],\"lengths\":[0]", "neither whole nor a range");
  refused("\"ranks\":[0,2]", "\"ranks\":[2,0]", "do not rise");
  refused("\"ranks\":[0,2]", "\"ranks\":[0,4]", "not below 4");
  refused("\"ranks\":[0,2]", "\"ranks\":[0,1]", "rank 1 holds two parts");
  refused("\"ranks\":[0,2]", "\"ranks\":[2]", "cannot lie in file 'model-rank00000");
  refused("\"ranks\":[0,2]", "\"ranks\":[]", "not a list of ranks");
  refused("\"ranks\":[0,2]", "\"ranks\":[-1]", "a rank");
  refused("\"ranks\":[0,2]", "\"sizes\":[0,2]", "neither whole nor a range");
  refused("zero stage 3, dp_shard 2, dp_replicate 2", "replicated", "not known in version 2");
}

TEST(checkpoint_index, mutations_behind_the_checksum_never_crash) {
  for (const std::string& seed : {index_text(example()), index_text(split_example()),
                                  text_of_version(1), text_of_version(2)}) {
    const std::string pieces[] = {
        "-1", "1e99", "null", "[", "{", "}", "\"\"", "99999999999999999999", "true", ","};
    std::mt19937 random(2);
    int refused = 0;
    for (int round = 0; round < 2000; ++round) {
      std::string text = seed;
      const size_t at = 70 + random() % (text.size() - 70);  // behind magic, version and checksum
      if (random() % 2)
        text[at] = static_cast<char>(random());
      else
        text.insert(at, pieces[random() % std::size(pieces)]);
      refused += corruption(resealed(text)) != "";
    }
    EXPECT_GT(refused, 1000);
  }
}

}  // namespace index_test
