// SPDX-License-Identifier: Apache-2.0
// What files of 100 MB cost that were made to cost memory: they are refused within half a gigabyte.
#include <gtest/gtest.h>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/interop/pickles.h"
#include "tests/support/forked.h"
#include "tests/support/memory_limit.h"
#include "tests/support/ranks.h"
#include "tests/support/sanitized.h"
#include "trireme/checkpoint/steps/step_reader.h"
#include "trireme/interop/weights/weight_source.h"
#include "trireme/interop/zip/zip_layout.h"
#include "trireme/interop/zip/zip_writer.h"

namespace trireme::test::hostile_memory_test {
namespace {

using interop::testing::bytes_of;
using interop::testing::little;

constexpr size_t kBytes = 99'000'000, kRoom = size_t{512} << 20;

/// `before`, and as much of `unit` as gives `kBytes`; "0000000" in it counts.
std::string filled(std::string text, std::string unit) {
  text.reserve(kBytes + unit.size());
  const size_t digits = unit.find("0000000");
  while (text.size() < kBytes) {
    text += unit;
    if (digits == unit.npos) continue;
    size_t last = digits + 6;
    while (unit[last] == '9') unit[last--] = '0';
    ++unit[last];
  }
  return text;
}

/// "": a process that may have so much more memory than it has was told so when it read.
std::string refused(const std::string& expected, const std::function<void()>& read,
                    size_t room = kRoom) {
  trireme::testing::ForkedChild child(trireme::testing::ChildEnd::exit_at_once, [&] {
    trireme::testing::limit_data(room);
    const std::string text = trireme::testing::outcome_of(read);
    return text.starts_with(expected.substr(0, expected.find(' '))) &&
                   text.ends_with(expected.substr(expected.find(' ') + 1))
               ? ""
               : "'" + text + "'";
  });
  return child.ended(std::chrono::seconds(60));
}

class checkpoint_steps_hostile_memory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (trireme::testing::kSanitized) GTEST_SKIP() << "a sanitizer's own memory is in the way";
  }
  std::string refused_as_index(std::string text, const std::string& expected) const {
    const std::string folder = folder_ / "run/step-00000007";
    std::filesystem::create_directories(folder);
    if (const size_t digits = text.find("xxh3:"); digits != text.npos)
      text.replace(digits + 5, 16, Checksum::of(text.data(), text.size()));
    write_text(folder + "/" + CheckpointIndex::kFileName, text);
    text = std::string();
    return refused(expected, [&] { read_step_index(folder); });
  }
  std::string refused_as_weights(const std::string& name, const std::string& bytes,
                                 const std::string& expected) const {
    const std::string path = folder_ / name;
    write_text(path, bytes);
    return refused(expected, [&] { interop::open_weights(path); });
  }

  PrivateFolder folder_;
};

const std::string kHead =
    "{\"magic\": \"trireme.checkpoint\",\n\"version\": 3,\n\"checksum\": \"xxh3:0000000000000000\","
    "\n\"step\": 7,\n\"world\": 1,\n\"layout\": \"replicated\",\n\"block\": 1048576,\n";
const std::string kManyJsonValues = "Corrupt: holds more than 2000000 values";

std::string safetensors(const std::string& header) { return little(header.size(), 8) + header; }

std::string pt(const std::string& pickle) {
  std::string out;
  interop::ZipWriter zip(
      [&](const void* bytes, size_t size) { out.append(static_cast<const char*>(bytes), size); });
  zip.add("x/data.pkl", bytes_of(pickle));
  zip.add("x/version", bytes_of("3\n"));
  zip.finish();
  return out;
}

TEST_F(checkpoint_steps_hostile_memory, an_index_of_more_values_than_any_has_is_refused) {
  const std::string tensor = kHead + "\"files\": {},\n\"tensors\": {\"model.w\": {";
  for (const auto& [before, unit] : {std::pair<std::string, std::string>("[", "[],"),
                                     {"{\"magic\": [", "{},"},
                                     {kHead + "\"files\": [", "[],"},
                                     {tensor + "\"parts\":[", "[],"},
                                     {tensor + "\"shape\":[", "0,"},
                                     {"{", "\"0000000\":0,"},
                                     {tensor, "\"0000000\":0,"}})
    EXPECT_EQ(refused_as_index(filled(before, unit), kManyJsonValues), "") << before << unit;
}

TEST_F(checkpoint_steps_hostile_memory, an_index_of_more_names_than_any_has_is_refused) {
  EXPECT_EQ(refused_as_index(filled(kHead + "\"values\": {", "\"0000000\":{\"int\":1},"),
                             "Corrupt: more than 1000000 values"),
            "");
  EXPECT_EQ(
      refused_as_index(filled(kHead + "\"files\": {", "\"a0000000\":{\"size\":1,\"head\":\"\"},"),
                       "Corrupt: more than 1000000 files"),
      "");
  EXPECT_EQ(refused_as_index(filled(kHead + "\"tensors\": {", "\"a0000000\":{},"),
                             "Corrupt: tensor 'a0000000': no 'dtype'"),
            "");
  // The limit is one: it can be too little.
  EXPECT_NE(refused(
                "Corrupt: tensor 'a0000000': no 'dtype'",
                [&] { read_step_index(folder_ / "run/step-00000007"); }, kRoom / 8),
            "");
}

TEST_F(checkpoint_steps_hostile_memory, a_safetensors_header_of_more_values_is_refused) {
  for (const auto& [before, unit] : {std::pair("{\"w\":[", "[],"), {"{\"w\":{\"shape\":[", "0,"}})
    EXPECT_EQ(
        refused_as_weights("x.safetensors", safetensors(filled(before, unit)), kManyJsonValues), "")
        << before << unit;
  EXPECT_EQ(refused_as_weights("x.safetensors",
                               safetensors(filled("{\"__metadata__\":{", "\"0000000\":\"\",")),
                               kManyJsonValues),
            "");
  EXPECT_EQ(refused_as_weights("x.safetensors", safetensors(filled("{", "\"0000000\":{},")),
                               "Corrupt: tensor '0000000': not a description of dtype, shape and "
                               "data_offsets"),
            "");
}

TEST_F(checkpoint_steps_hostile_memory, a_pickle_of_more_values_is_refused) {
  const std::string many = "Corrupt: holds more than 4000000 values";
  for (const std::string& unit :
       {std::string("]"), std::string("K\1", 2), interop::testing::text("sixteen letters.")})
    EXPECT_EQ(refused_as_weights("x.pt", pt(filled("\x80\x02", unit)), many), "") << unit;
  // One value, to which ever more refer; and one that is remembered under a high number.
  EXPECT_EQ(refused_as_weights(
                "x.pt", pt(filled(std::string("\x80\x02]q\0(", 6), std::string("h\0", 2))), many),
            "");
  EXPECT_EQ(refused_as_weights(
                "x.pt",
                pt("\x80\x02" + interop::testing::text(std::string(kBytes, 'x')) + "r" +
                   little(kBytes, 4) + "."),
                fmt::format("Corrupt: remembers a value under {} at byte {}", kBytes, kBytes + 12)),
            "");
}

TEST_F(checkpoint_steps_hostile_memory, an_archive_that_would_unpack_to_more_is_refused) {
  // Its values are compressed and say that they have 4 GiB.
  std::string bomb = pt("\x80\x02}.");
  const size_t central = bomb.find(little(interop::kCentralMark, 4)),
               local = bomb.find(little(interop::kLocalMark, 4));
  bomb.replace(central + 10, 2, little(8, 2)), bomb.replace(local + 8, 2, little(8, 2));
  bomb.replace(central + 24, 4, little(0xFFFFFFF0, 4));
  EXPECT_EQ(
      refused_as_weights("x.pt", bomb,
                         "UsageError: record 'x/data.pkl' is compressed, as torch never writes "
                         "it: open the file in Python with torch.load and save it again with "
                         "torch.save"),
      "");
}

TEST_F(checkpoint_steps_hostile_memory, an_archive_of_nothing_but_names_is_refused) {
  std::string names;
  interop::ZipWriter zip(
      [&](const void* bytes, size_t size) { names.append(static_cast<const char*>(bytes), size); });
  for (int i = 0; i < 850'000; ++i) zip.add(fmt::format("x/{:07}", i), {});
  zip.finish();
  EXPECT_GT(names.size(), kBytes);
  EXPECT_EQ(refused_as_weights("x.pt", names,
                               "UsageError: is a zip archive without data.pkl: not a file of "
                               "torch.save"),
            "");
}

}  // namespace
}  // namespace trireme::test::hostile_memory_test
