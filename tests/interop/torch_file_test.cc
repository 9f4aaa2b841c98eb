// SPDX-License-Identifier: Apache-2.0
// Files that PyTorch 1.13.1 wrote (tests/interop/fixtures), and our own.
#include "trireme/interop/torch_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/interop/pickles.h"
#include "tests/interop/told.h"
#include "trireme/interop/zip/zip_writer.h"

namespace trireme::interop::torch_file_test {
namespace {

using namespace trireme::interop::testing;

std::string archive(const std::vector<std::pair<std::string, std::string>>& records) {
  std::string out;
  ZipWriter zip(
      [&](const void* bytes, size_t size) { out.append(static_cast<const char*>(bytes), size); });
  for (const auto& [name, bytes] : records) zip.add("archive/" + name, bytes_of(bytes));
  zip.finish();
  return out;
}
std::string refused(const std::string& bytes) {
  return said([&] { TorchFile(bytes_of(bytes), "x.pt"); });
}
/// All that a reader can tell of a file, or what it says of it.
std::string all_of(const std::string& bytes) {
  std::string out;
  const std::string refusal = said([&] {
    const TorchFile file(bytes_of(bytes), "x.pt");
    file.verify();
    for (const NamedArray& array : file.arrays()) {
      std::vector<uint8_t> elements(array.bytes());
      copy_elements(array, file.bytes(), elements);
      out += array.name + array.dtype + hex_of(elements) + "\n";
    }
    for (const NamedNode& value : file.values())
      out += value.name + file.tree().described(value.node) + "\n";
  });
  return refusal.empty() ? out : refusal;
}
std::vector<std::string> names_of(const std::vector<NamedArray>& arrays) {
  std::vector<std::string> names;
  for (const NamedArray& array : arrays) names.push_back(array.name);
  return names;
}

TEST(interop_torch_file, what_python_saved_is_read_to_the_bit) {
  for (const char* name : {"every_dtype", "views", "training", "single", "protocol_5"}) {
    SCOPED_TRACE(name);
    const TorchFile file(kFixtures + name + ".pt");
    expect_as_told(file, told(kFixtures + name + ".json"));
    EXPECT_FALSE(file.script());
    EXPECT_NO_THROW(file.verify());
  }
}

TEST(interop_torch_file, every_dtype_has_a_matrix_a_scalar_and_an_empty_tensor) {
  const TorchFile file(kFixtures + "every_dtype.pt");
  const auto arrays = file.arrays();
  ASSERT_EQ(arrays.size(), 30u);
  for (size_t i = 0; i < arrays.size(); i += 3) {
    EXPECT_EQ(arrays[i].name, arrays[i].dtype);
    EXPECT_EQ(arrays[i + 1].elements(), 1);
    EXPECT_TRUE(arrays[i + 1].shape.empty());
    EXPECT_EQ(arrays[i + 2].begin, arrays[i + 2].end);
  }
}

TEST(interop_torch_file, views_of_one_storage_are_ranges_of_the_same_bytes) {
  const TorchFile file(kFixtures + "views.pt");
  const auto arrays = file.arrays();
  const auto find = [&](const std::string& name) {
    for (const NamedArray& array : arrays)
      if (array.name == name) return array;
    ADD_FAILURE() << name;
    return NamedArray();
  };
  const NamedArray base = find("base"), corner = find("corner"), transposed = find("transposed");
  EXPECT_EQ(corner.begin, base.begin + 8 * 4);
  EXPECT_EQ(corner.end, corner.begin + (6 + 2 + 1) * 4);
  EXPECT_FALSE(corner.contiguous());
  EXPECT_FALSE(transposed.contiguous());
  EXPECT_EQ(transposed.begin, base.begin);
  EXPECT_EQ(transposed.end, base.end);
  EXPECT_TRUE(find("row").contiguous());
  EXPECT_EQ(base.begin % 64, 0u);
  EXPECT_EQ(find("in.embedding").begin, find("out.0").begin);
  EXPECT_EQ(find("out.1.0").begin, base.begin);
  EXPECT_EQ(file.tree().storages.size(), 2u);
}

TEST(interop_torch_file, modules_of_torchscript_and_of_cpp_give_parameters_and_buffers) {
  const TorchFile script(kFixtures + "script.pt");
  EXPECT_TRUE(script.script());
  expect_as_told(script, told(kFixtures + "script.json"), false);
  const TorchFile module(kFixtures + "cpp_module.pt");
  EXPECT_TRUE(module.script());
  EXPECT_EQ(
      names_of(module.arrays()),
      (std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                                "1.running_var", "1.num_batches_tracked", "2.weight", "2.bias"}));
  module.verify();
}

TEST(interop_torch_file, tensors_and_optimizers_that_cpp_saved_are_read) {
  const TorchFile list(kFixtures + "cpp_list.pt");
  const auto arrays = list.arrays();
  ASSERT_GE(arrays.size(), 2u);
  EXPECT_EQ(arrays[0].name, "0");
  EXPECT_EQ(hex_of(arrays[0]), "000000000000000001000000000000000200000000000000");
  EXPECT_EQ(arrays[1].strides, (std::vector<int64_t>{1, 2}));
  const TorchFile tensor(kFixtures + "cpp_tensor.pt");
  EXPECT_EQ(hex_of(tensor.arrays()[0]), "000000000000803f0000004000004040");
  const TorchFile optimizer(kFixtures + "cpp_optimizer.pt");
  size_t moments = 0;
  for (const NamedArray& array : optimizer.arrays()) moments += array.name.ends_with(".exp_avg");
  EXPECT_EQ(moments, 6u);
  bool rate = false;
  for (const NamedNode& value : optimizer.values())
    if (value.name.ends_with(".options.lr")) rate = optimizer.tree()[value.node].real == 0.01;
  EXPECT_TRUE(rate);
}

TEST(interop_torch_file, what_is_not_read_says_how_to_convert_it) {
  EXPECT_SAYS(
      said([&] { TorchFile(kFixtures + "old.pt"); }),
      "is of torch.save before PyTorch 1.6: open it in Python with torch.load and save it again");
  const std::string values = pickle("}");
  EXPECT_EQ(refused(archive({{"data.pkl", values}, {"version", "3\n"}})), "");
  EXPECT_EQ(refused(archive({{"data.pkl", values}, {"version", "3\n"}, {"byteorder", "little"}})),
            "");
  EXPECT_SAYS(refused(archive({{"data.pkl", values}, {"version", "3\n"}, {"byteorder", "big"}})),
              "big-endian machine");
  EXPECT_SAYS(refused(archive({{"data.pkl", values}, {"version", "3\n"}, {"byteorder", "?"}})),
              "'?' for a byte order");
  EXPECT_SAYS(refused(archive({{"data.pkl", values}, {"version", "11\n"}})),
              "is of version 11; we read up to 10");
  EXPECT_SAYS(refused(archive({{"data.pkl", values}, {"version", "x"}})), "'x' for a version");
  EXPECT_SAYS(refused(archive({{"data.pkl", values}})), "has no version");
  EXPECT_SAYS(refused(archive({{"x/data.pkl", values}, {"version", "3\n"}})), "without data.pkl");
  EXPECT_SAYS(refused("{\"not\": \"torch\"}                         "),
              "does not end as a zip archive");
  EXPECT_SAYS(said([] { TorchFile("/nowhere/x.pt"); }), "does not exist");
}

TEST(interop_torch_file, a_storage_that_is_absent_or_of_another_size_is_refused) {
  const std::string two = pickle(tensor(storage("FloatStorage", "0", 2), 0, whole(2), whole(1)));
  EXPECT_EQ(refused(archive({{"data.pkl", two}, {"data/0", "12345678"}, {"version", "3\n"}})), "");
  EXPECT_SAYS(refused(archive({{"data.pkl", two}, {"version", "3\n"}})),
              "has no record for storage '0'");
  EXPECT_SAYS(refused(archive({{"data.pkl", two}, {"data/0", "1234567"}, {"version", "3\n"}})),
              "has 7 bytes, its description 8");
  const std::string escaping = pickle(storage("FloatStorage", "../version", 2));
  EXPECT_SAYS(refused(archive({{"data.pkl", escaping}, {"version", "3\n"}})),
              "has no record for storage '../version'");
}

TEST(interop_torch_file, names_that_clash_or_are_none_are_refused) {
  const auto values = [](const std::string& body) {
    const std::string bytes = archive({{"data.pkl", pickle(body)}, {"version", "3\n"}});
    return said([&] { TorchFile(bytes_of(bytes), "x.pt").values(); });
  };
  EXPECT_SAYS(values(dict(text("a.b") + "N" + text("a") + dict(text("b") + "N"))),
              "two values are called 'a.b'");
  EXPECT_SAYS(values(dict("N"
                          "N")),
              "has the key None, which is neither text nor a whole number");
  EXPECT_EQ(values(dict(whole(3) + "N")), "");
  // 40 tuples, each twice in the next: 2^40 names.
  std::string doubled = "](NNe";
  for (char i = 0; i < 40; ++i) doubled += std::string("q") + i + "h" + i + "\x86";
  EXPECT_SAYS(values(doubled), "more than 1000000 values have names");
}

TEST(interop_torch_file, cut_short_at_any_byte_it_is_refused) {
  const std::string whole_file = read_file(kFixtures + "single.pt");
  const std::string expected = all_of(whole_file);
  ASSERT_NE(expected.find("valueI64"), std::string::npos);
  for (size_t size = 0; size < whole_file.size(); ++size) {
    const std::string found = all_of(whole_file.substr(0, size));
    EXPECT_TRUE(found.rfind("Corrupt: ", 0) == 0 || found.rfind("UsageError: ", 0) == 0)
        << size << ": " << found;
  }
}

TEST(interop_torch_file, with_any_bit_flipped_it_is_refused_or_the_same) {
  for (const char* name : {"views", "training", "cpp_module"}) {
    const std::string whole_file = read_file(kFixtures + name + ".pt");
    const std::string expected = all_of(whole_file);
    std::mt19937_64 random(7);
    size_t noticed = 0;
    for (int round = 0; round < 1000; ++round) {
      std::string flipped = whole_file;
      flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
      const std::string found = all_of(flipped);
      const bool refusal = found.rfind("Corrupt: ", 0) == 0 || found.rfind("UsageError: ", 0) == 0;
      EXPECT_TRUE(refusal || found == expected) << name << ", round " << round << ": " << found;
      noticed += refusal;
    }
    EXPECT_GT(noticed, 300u) << name;
  }
}

TEST(interop_torch_file, what_we_write_we_read) {
  const PrivateFolder folder;
  Tree tree;
  const std::vector<float> weight{1, 2, 3, 4, 5, 6};
  const std::vector<uint8_t> flags{1, 0, 1};
  tree.root = tree.ordered_dict();
  const NodeId shared = tree.array("F32", {2, 3});
  tree.set(tree.root, "embedding", shared);
  tree.set(
      tree.root, "head",
      tree.array({.dtype = "F32", .shape = {3, 2}, .strides = {1, 3}, .offset = 0, .storage = 0}));
  tree.set(tree.root, "mask", tree.array("BOOL", {3}));
  tree.set(tree.root, "nothing", tree.array("BF16", {0, 4}));
  tree.set(tree.root, "scalar", tree.array("F32", {}));
  const float scalar = 0.5;
  const auto bytes = [&](size_t storage) -> std::span<const uint8_t> {
    switch (storage) {
      case 0:
        return {reinterpret_cast<const uint8_t*>(weight.data()), 24};
      case 1:
        return flags;
      case 2:
        return {};
      default:
        return {reinterpret_cast<const uint8_t*>(&scalar), 4};
    }
  };
  const std::string path = folder / "own.pt";
  std::ofstream(path) << "what was there before";
  write_torch_file(path, tree, bytes);
  const TorchFile file(path);
  file.verify();
  const auto arrays = file.arrays();
  EXPECT_EQ(names_of(arrays),
            (std::vector<std::string>{"embedding", "head", "mask", "nothing", "scalar"}));
  EXPECT_EQ(hex_of(arrays[0]),
            "0000803f000000400000404000008040"
            "0000a0400000c040");
  EXPECT_EQ(hex_of(arrays[1]),
            "0000803f0000804000000040"
            "0000a040000040400000c040");
  EXPECT_EQ(arrays[0].begin, arrays[1].begin);
  EXPECT_EQ(hex_of(arrays[2]), "010001");
  EXPECT_EQ(arrays[3].shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(hex_of(arrays[4]), "0000003f");
  const std::string once = read_file(path);
  write_torch_file(path, tree, bytes);
  EXPECT_EQ(read_file(path), once);  // the same bytes whenever it is written
  // Nothing stays behind when a write is refused.
  EXPECT_SAYS(said([&] {
                write_torch_file(folder / "bad.pt", tree,
                                 [](size_t) { return std::span<const uint8_t>(); });
              }),
              "storage 0 has 24 bytes; 0 were given for it");
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
    ++files;
  EXPECT_EQ(files, 1u);
}

TEST(interop_torch_file, elements_are_copied_in_order_whatever_the_strides) {
  const std::vector<uint8_t> file{9, 0, 1, 2, 3, 4, 5, 9};
  NamedArray array{.name = "x",
                   .dtype = "U8",
                   .shape = {3, 2},
                   .strides = {1, 3},
                   .file = "f",
                   .begin = 1,
                   .end = 7};
  std::vector<uint8_t> out(6);
  copy_elements(array, file, out);
  EXPECT_EQ(out, (std::vector<uint8_t>{0, 3, 1, 4, 2, 5}));
  array.shape = {3, 1, 2};
  array.strides = {1, INT64_MAX, 3};
  copy_elements(array, file, out);
  EXPECT_EQ(out, (std::vector<uint8_t>{0, 3, 1, 4, 2, 5}));
  array.end = 9;
  EXPECT_SAYS(said([&] { copy_elements(array, file, out); }),
              "'x' ends at byte 9 of f, which has 8");
  out.resize(5);
  EXPECT_SAYS(said([&] { copy_elements(array, file, out); }),
              "'x' has 6 bytes, there is room for 5");
}

}  // namespace
}  // namespace trireme::interop::torch_file_test
