// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/idx.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace idx_test {

using namespace trireme;

namespace {

std::string word(uint32_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8),
          static_cast<char>(v)};
}

class data_idx : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    write_file_atomic(folder / name, bytes);
  }
  std::string images(uint32_t n) {
    std::string s = word(0x803) + word(n) + word(2) + word(3);
    for (uint32_t i = 0; i < 6 * n; ++i) s += static_cast<char>(i * 7);
    return s;
  }
  std::string labels(const std::string& values) {
    return word(0x801) + word(static_cast<uint32_t>(values.size())) + values;
  }
  std::string message(IdxPart part = IdxPart::kTrain) {
    try {
      open_idx(folder.path(), part);
    } catch (const Error& e) {
      return e.kind() + std::string(": ") + e.what();
    }
    return "";
  }
  bool says(const std::string& text) {
    const auto m = message();
    return m.find(text) != std::string::npos ? true : (ADD_FAILURE() << m, false);
  }
  PrivateFolder folder;
};

}  // namespace

TEST_F(data_idx, images_and_labels_come_as_tensors) {
  write("train-images-idx3-ubyte", images(4));
  write("train-labels-idx1-ubyte", labels({3, 1, 4, 1}));
  const auto source = open_idx(folder.path(), IdxPart::kTrain);
  ASSERT_EQ(source->size(), 4);
  const auto batch = source->get({2, 0});
  EXPECT_EQ(batch.input.sizes(), (at::IntArrayRef{2, 1, 2, 3}));
  EXPECT_EQ(batch.target[0].item<int64_t>(), 4);
  EXPECT_EQ(batch.target[1].item<int64_t>(), 3);
  EXPECT_EQ(batch.weight, 2);
  EXPECT_FLOAT_EQ(batch.input[0][0][0][1].item<float>(), normalised_pixel(13 * 7 / 255.0f));
  EXPECT_THROW(source->get({4}), UsageError);
}

TEST_F(data_idx, the_test_part_and_dotted_names_are_found) {
  write("t10k-images.idx3-ubyte", images(1));
  write("t10k-labels.idx1-ubyte", labels({7}));
  EXPECT_EQ(open_idx(folder.path(), IdxPart::kTest)->size(), 1);
}

TEST_F(data_idx, what_is_wrong_is_said_with_counts) {
  EXPECT_TRUE(says("UsageError"));
  write("train-images-idx3-ubyte.gz", "\x1f\x8b...");
  EXPECT_TRUE(says("compressed"));

  write("train-labels-idx1-ubyte", labels({3, 1}));
  write("train-images-idx3-ubyte", "\x1f\x8b...");
  EXPECT_TRUE(says("compressed by gzip"));
  write("train-images-idx3-ubyte", labels({3, 1}) + std::string(20, ' '));
  EXPECT_TRUE(says("its magic is 0x00000801, not 0x00000803"));
  write("train-images-idx3-ubyte", "");
  EXPECT_TRUE(says("Corrupt"));
  EXPECT_TRUE(says("0 bytes, and its header alone has 16"));
  write("train-images-idx3-ubyte", images(2).substr(0, 26));
  EXPECT_TRUE(says("truncated: 10 bytes after its header, which announces 12"));
  write("train-images-idx3-ubyte", images(2) + "x");
  EXPECT_TRUE(says("too long"));
  write("train-images-idx3-ubyte", word(0x803) + word(~0u) + word(~0u) + word(~0u) + "xy");
  EXPECT_TRUE(says("truncated"));
  write("train-images-idx3-ubyte", images(3));
  EXPECT_TRUE(says("3 images"));
  write("train-images-idx3-ubyte", images(2));
  write("train-labels-idx1-ubyte", labels({3, 11}));
  EXPECT_TRUE(says("label is 11"));
}

}  // namespace idx_test
