// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/interop/pickles.h"
#include "tests/interop/told.h"
#include "trireme/interop/array_folder.h"
#include "trireme/interop/safetensors_header.h"

namespace trireme::interop::safetensors_folder_test {
namespace {

using namespace trireme::interop::testing;

std::string file_of(const std::string& header, const std::string& data) {
  return little(header.size(), 8) + header + data;
}
void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
std::string u8(const std::string& name, int64_t length, int64_t begin) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name, length,
                     begin, begin + length);
}
/// With the offsets as DCP's Hugging Face writer tells them.
std::string shard(const std::string& tensors, const std::string& offsets, const std::string& data) {
  return file_of(R"({"__metadata__":{"DCP_VERSION":"1.0","DCP_SHARDING_INFO":")" + offsets +
                     R"("},)" + tensors + "}",
                 data);
}
std::string refused(const PrivateFolder& folder) {
  return said([&] { read_array_folder(folder.path()); });
}

TEST(interop_safetensors_folder, the_header_tells_where_tensors_lie) {
  const std::string bytes =
      file_of(R"({"__metadata__":{"k":"v"},)" + u8("b", 2, 3) + "," + u8("a", 3, 0) + "}", "abcde");
  const SafetensorsHeader header = read_safetensors_header(bytes_of(bytes), "x");
  EXPECT_EQ(header.metadata.at("k"), "v");
  ASSERT_EQ(header.arrays.size(), 2u);
  EXPECT_EQ(header.arrays[0].name, "a");
  EXPECT_EQ(header.arrays[1].begin, header.data + 3);
  EXPECT_EQ(bytes.substr(header.arrays[1].begin, 2), "de");
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(said([&] {
                read_safetensors_header(bytes_of(bytes).first(size), "x");
              }).rfind("Corrupt: ", 0),
              0u)
        << size;
}

TEST(interop_safetensors_folder, shards_of_dcp_make_global_tensors) {
  const PrivateFolder folder;
  write(folder / "shard-00001-model-00001-of-00001.safetensors",
        shard(u8("w", 3, 0) + "," + u8("b", 1, 3),
              R"({\"w\":{\"saved_offsets\":[0]},\"b\":{\"saved_offsets\":[0]}})", "abcx"));
  write(folder / "shard-00002-model-00001-of-00001.safetensors",
        shard(u8("w", 2, 0), R"({\"w\":{\"saved_offsets\":[3]}})", "de"));
  const ArrayFolder found = read_array_folder(folder.path());
  ASSERT_EQ(found.arrays.size(), 2u);
  EXPECT_EQ(found.arrays[1].name, "w");
  EXPECT_EQ(found.arrays[1].shape, std::vector<int64_t>{5});
  ASSERT_EQ(found.arrays[1].boxes.size(), 2u);
  EXPECT_EQ(hex_of(found.arrays[1].boxes[1].at), "6465");
  EXPECT_TRUE(found.values.empty());
}

TEST(interop_safetensors_folder, shards_that_overlap_or_leave_a_hole_are_refused) {
  for (const auto& [at, says] : std::vector<std::pair<std::string, std::string>>{
           {"2", "has 4 elements, its pieces 5"},
           {"4", "has 6 elements, its pieces 5"},
           {"9223372036854775807", "ends beyond 2^63"}}) {
    const PrivateFolder folder;
    write(folder / "a.safetensors",
          shard(u8("w", 3, 0), R"({\"w\":{\"saved_offsets\":[0]}})", "abc"));
    write(folder / "b.safetensors",
          shard(u8("w", 2, 0), R"({\"w\":{\"saved_offsets\":[)" + at + "]}}", "de"));
    const std::string found = refused(folder);
    EXPECT_TRUE(found.find(says) != found.npos || found.find("overlap") != found.npos) << found;
    EXPECT_EQ(found.rfind("Corrupt: ", 0), 0u);
  }
  const PrivateFolder folder;
  write(folder / "a.safetensors", shard(u8("w", 3, 0), R"({\"v\":{}})", "abc"));
  EXPECT_SAYS(refused(folder), "no 'w'");
}

TEST(interop_safetensors_folder, the_index_of_hugging_face_tells_which_file_has_a_tensor) {
  const PrivateFolder folder;
  write(folder / "model-00001-of-00002.safetensors", file_of("{" + u8("a", 1, 0) + "}", "a"));
  write(folder / "model-00002-of-00002.safetensors", file_of("{" + u8("b", 1, 0) + "}", "b"));
  write(folder / "adapter.safetensors", file_of("{" + u8("a", 2, 0) + "}", "zz"));
  const auto index = [&](const std::string& map) {
    write(folder / "model.safetensors.index.json",
          R"({"metadata":{"total_size":2},"weight_map":{)" + map + "}}");
  };
  index(R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors")");
  const ArrayFolder found = read_array_folder(folder.path());
  ASSERT_EQ(found.arrays.size(), 2u);
  EXPECT_EQ(hex_of(found.arrays[0].boxes[0].at), "61");
  index(R"("a":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors")");
  EXPECT_SAYS(refused(folder), "tensor 'c' is not in model-00002-of-00002.safetensors");
  index(R"("a":"../x.safetensors")");
  EXPECT_SAYS(refused(folder), "which is not in its folder");
}

TEST(interop_safetensors_folder, a_tensor_twice_and_a_folder_of_something_else_are_refused) {
  const PrivateFolder folder;
  EXPECT_SAYS(refused(folder), "has no .metadata and no tensors in *.safetensors");
  write(folder / "a.safetensors", file_of("{" + u8("a", 1, 0) + "}", "a"));
  EXPECT_EQ(refused(folder), "");
  write(folder / "b.safetensors", file_of("{" + u8("a", 1, 0) + "}", "b"));
  EXPECT_SAYS(refused(folder),
              "Corrupt: " + folder.path() + ": tensor 'a' has pieces that overlap");
  EXPECT_SAYS(said([] { read_array_folder("/nowhere"); }), "cannot list folder '/nowhere'");
}

}  // namespace
}  // namespace trireme::interop::safetensors_folder_test
