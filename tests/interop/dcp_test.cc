// SPDX-License-Identifier: Apache-2.0
// Folders of torch.distributed.checkpoint: what two ranks of PyTorch 1.13.1 wrote, and the layout
// of 2.x by hand.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "tests/interop/dcp_pickles.h"
#include "tests/interop/told.h"
#include "tests/support/paths.h"
#include "trireme/interop/array_folder.h"
#include "trireme/interop/dcp_metadata.h"
#include "trireme/interop/zip/zip_writer.h"

namespace trireme::interop::dcp_test {
namespace {

using namespace trireme::interop::testing;

DcpMetadata read(const std::string& bytes) { return read_dcp_metadata(bytes_of(bytes), "m"); }
std::string refused(const std::string& bytes) {
  return said([&] { read(bytes); });
}
void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

/// What torch.save writes for a vector of float32.
std::string saved(const std::vector<float>& values) {
  std::string out;
  ZipWriter zip(
      [&](const void* bytes, size_t size) { out.append(static_cast<const char*>(bytes), size); });
  const auto count = static_cast<int32_t>(values.size());
  zip.add("archive/data.pkl",
          bytes_of(pickle(tensor(storage("FloatStorage", "0", count), 0, whole(count), whole(1)))));
  zip.add("archive/data/0", {reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4});
  zip.add("archive/version", bytes_of("3\n"));
  zip.finish();
  return out;
}

TEST(interop_dcp, what_two_ranks_of_python_wrote_is_read) {
  const ArrayFolder folder = read_array_folder(kFixtures + "dcp");
  const auto expected = told(kFixtures + "dcp.json");
  ASSERT_EQ(folder.arrays.size(), expected["tensors"].size());
  for (const BoxedArray& array : folder.arrays) {
    const auto& tensor = expected["tensors"][array.name];
    EXPECT_EQ(array.dtype, tensor["dtype"].get<std::string>());
    EXPECT_EQ(array.shape, tensor["shape"].get<std::vector<int64_t>>());
    std::string hex;  // boxes are sorted, and of rows
    for (const Box& box : array.boxes) hex += hex_of(box.at);
    EXPECT_EQ(hex, tensor["hex"].get<std::string>()) << array.name;
  }
  const auto& sharded = folder.arrays[1];
  EXPECT_EQ(sharded.name, "model.fc.weight");
  ASSERT_EQ(sharded.boxes.size(), 2u);
  EXPECT_EQ(sharded.boxes[1].offsets, (std::vector<int64_t>{3, 0}));
  EXPECT_TRUE(sharded.boxes[1].at.file.ends_with("/dcp/__1_0.distcp"));
  const Tree& rate = folder.values.at("lr");
  EXPECT_EQ(rate[rate.root].real, 0.125);
  const Tree& betas = folder.values.at("betas");
  EXPECT_EQ(betas[betas.root].items.size(), 2u);
  EXPECT_EQ(folder.values.size(), 2u);
}

TEST(interop_dcp, the_layout_of_2_x_is_read) {
  const PrivateFolder folder;
  const std::string first = saved({0, 1, 2}), second = saved({3, 4});
  write(folder / "__0_0.distcp", first + second);
  write(
      folder / ".metadata",
      metadata(
          text("w") + described_tensor("float32", whole(5),
                                       chunk(whole(0), whole(3)) + chunk(whole(3), whole(2)) +
                                           chunk(whole(5), whole(0)) + chunk(whole(5), whole(0))),
          index_of("w", torch_size(whole(0))) +
              place_of("__0_0.distcp", 0, static_cast<int32_t>(first.size())) +
              index_of("w", torch_size(whole(3))) +
              place_of("__0_0.distcp", static_cast<int32_t>(first.size()),
                       static_cast<int32_t>(second.size()), text("transform_descriptors") + "N")));
  const ArrayFolder found = read_array_folder(folder.path());
  ASSERT_EQ(found.arrays.size(), 1u);
  ASSERT_EQ(found.arrays[0].boxes.size(), 2u);  // those of ranks without a share are left out
  EXPECT_EQ(hex_of(found.arrays[0].boxes[0].at), "000000000000803f00000040");
  EXPECT_EQ(hex_of(found.arrays[0].boxes[1].at), "0000404000008040");
}

// By Python's own pickle, protocol 4, of classes with these names.
TEST(interop_dcp, the_layout_of_2_x_is_read_from_newer_pickles) {
  const DcpMetadata found = read(read_file(
      trireme::testing::source_path("/tests/fuzz/corpus/dcp_metadata/layout_of_2_x.bin")));
  ASSERT_EQ(found.tensors.size(), 2u);
  EXPECT_EQ(found.tensors[0].name, "model.w");
  EXPECT_EQ(found.tensors[0].dtype, "F32");
  EXPECT_EQ(found.tensors[0].shape, (std::vector<int64_t>{4, 2}));
  ASSERT_EQ(found.tensors[0].chunks.size(), 2u);
  EXPECT_EQ(found.tensors[0].chunks[1].offsets, (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(found.tensors[0].chunks[1].item.file, "__1_0.distcp");
  EXPECT_EQ(found.tensors[1].chunks[0].item.offset, 700u);
  ASSERT_EQ(found.values.size(), 1u);
  EXPECT_EQ(found.values[0].name, "step");
  EXPECT_EQ(found.values[0].item.length, 400u);
}

TEST(interop_dcp, a_piece_that_is_not_as_described_is_refused) {
  const std::string whole_tensor = saved({0, 1, 2});
  const auto says = [&](const std::string& described, const std::string& places) {
    const PrivateFolder folder;
    write(folder / "__0_0.distcp", whole_tensor);
    write(folder / ".metadata", metadata(described, places));
    return said([&] { read_array_folder(folder.path()); });
  };
  const auto length = static_cast<int32_t>(whole_tensor.size());
  const std::string there =
      index_of("w", torch_size(whole(0))) + place_of("__0_0.distcp", 0, length);
  const auto one = [&](const std::string& dtype, int32_t shape, const std::string& chunks) {
    return text("w") + described_tensor(dtype, whole(shape), chunks);
  };
  const std::string three = chunk(whole(0), whole(3));
  EXPECT_EQ(says(one("float32", 3, three), there), "");
  EXPECT_SAYS(says(one("int32", 3, three), there), "a piece of another shape or dtype");
  EXPECT_SAYS(says(one("float32", 4, chunk(whole(0), whole(4))), there),
              "a piece of another shape or dtype");
  EXPECT_SAYS(says(one("float32", 4, three), there), "has 4 elements, its pieces 3");
  EXPECT_SAYS(says(one("float32", 2, three), there), "has a piece beyond its shape");
  EXPECT_SAYS(says(one("float32", 3, three + three), there), "does not tell in which file 'w' is");
  EXPECT_SAYS(says(one("float32", 3, three),
                   index_of("w", torch_size(whole(0))) + place_of("__0_0.distcp", 1, length)),
              "which has " + std::to_string(length));
  EXPECT_SAYS(says(one("float32", 3, three),
                   index_of("w", torch_size(whole(0))) + place_of("__0_0.distcp", 0, length - 1)),
              "does not end as a zip archive");
  EXPECT_SAYS(says(one("float32", 3, three),
                   index_of("w", torch_size(whole(0))) + place_of("__9_0.distcp", 0, length)),
              "__9_0.distcp' does not exist");
  for (const char* file : {"../x", "/etc/passwd", "a/../../x", "", "a\nb"})
    EXPECT_SAYS(says(one("float32", 3, three),
                     index_of("w", torch_size(whole(0))) + place_of(file, 0, length)),
                "which is not in its folder");
}

TEST(interop_dcp, descriptions_that_do_not_hold_together_are_refused) {
  const std::string three = chunk(whole(0), whole(3)),
                    there = index_of("w", torch_size(whole(0))) + place_of("f", 0, 9);
  const std::string good = text("w") + described_tensor("float32", whole(3), three);
  EXPECT_EQ(refused(metadata(good, there)), "");
  EXPECT_SAYS(refused(metadata(good, "")), "does not tell in which file 'w' is");
  EXPECT_SAYS(refused(metadata(good, there + there)), "the place of 'w' is given twice");
  EXPECT_SAYS(refused(metadata(good, there + index_of("v", "N") + place_of("f", 8, 9))),
              "two items of f share bytes");
  EXPECT_SAYS(refused(metadata(
                  good, index_of("w", torch_size(whole(0))) +
                            place_of("f", 0, 9,
                                     text("transform_descriptors") + "](" + text("zstd") + "e"))),
              "is compressed or encoded");
  EXPECT_SAYS(refused(metadata(good, index_of("w", torch_size(whole(0))) + place_of("f", -1, 9))),
              "has -1 for its offset");
  EXPECT_SAYS(refused(metadata(good, text("w") + place_of("f", 0, 9))),
              "places 'w' at a torch.distributed.checkpoint.filesystem._StorageInfo");
  EXPECT_SAYS(refused(metadata(text("w") + described_tensor("complex64", whole(3), three), there)),
              "has dtype torch.complex64");
  EXPECT_SAYS(
      refused(metadata(text("w") + described_tensor("float32", whole(3) + whole(1), three), there)),
      "a chunk of other dims");
  EXPECT_SAYS(refused(metadata(text("w") + text("x"), there)), "describes 'w' by 'x'");
  EXPECT_SAYS(refused(metadata(whole(1) + text("x"), there)), "describes a value called 1");
  EXPECT_SAYS(refused(pickle("}")), "holds a dict, not the Metadata of a DCP folder");
  EXPECT_SAYS(refused(pickle(global("os", "system"))), "refuses os.system");
}

TEST(interop_dcp, metadata_cut_short_or_with_a_bit_flipped_is_refused_or_read) {
  const std::string whole_file = read_file(kFixtures + "dcp/.metadata");
  for (size_t size = 0; size < whole_file.size(); ++size) {
    const std::string found = refused(whole_file.substr(0, size));
    EXPECT_TRUE(found.rfind("Corrupt: ", 0) == 0 || found.rfind("UsageError: ", 0) == 0)
        << size << ": " << found;
  }
  std::mt19937_64 random(7);
  size_t noticed = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string flipped = whole_file;
    flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    noticed += !refused(flipped).empty();  // another exception would end the test
  }
  EXPECT_GT(noticed, 500u);
}

}  // namespace
}  // namespace trireme::interop::dcp_test
