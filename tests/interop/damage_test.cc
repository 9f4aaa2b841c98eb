// SPDX-License-Identifier: Apache-2.0
// Seeded damage to everything that open_weights reads. The sanitizers' trees run it.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>

#include "tests/interop/told.h"
#include "tests/interop/weight_files.h"

namespace trireme::interop::damage_test {
namespace {

namespace fs = std::filesystem;
using namespace trireme::interop::testing;

/// All that a reader can tell of the weights at `path`, or what it says of them. Whatever they are,
/// no tensor has more bytes than there are.
std::string all_of(const std::string& path, uint64_t size) {
  std::string out;
  const std::string refusal = said([&] {
    const WeightSource source = open_weights(path);
    ArrayReader reader;
    for (const SourceArray& a : source.arrays) {
      reader.verify(a.array);
      const auto bytes = reader.elements(a.array);
      EXPECT_LE(bytes.size(), size) << a.array.name;
      out += a.array.name + a.array.dtype + std::to_string(a.array.shape.size()) + hex_of(bytes);
    }
  });
  return refusal.empty() ? out : refusal;
}

bool refusal(const std::string& said) {
  return said.rfind("Corrupt: ", 0) == 0 || said.rfind("UsageError: ", 0) == 0;
}

/// Damages a file of the folder `whole`, or that file, 1,000 times: bits flipped, or cut short.
/// `summed`: what is read is what was there. How often it was noticed.
int damage(const std::string& whole, const std::string& damaged, bool summed) {
  const std::string good = read_file(damaged);
  uint64_t size = 0;
  if (fs::is_directory(whole))
    for (const auto& entry : fs::directory_iterator(whole)) size += entry.file_size();
  else
    size = fs::file_size(whole);
  const std::string expected = all_of(whole, size);
  EXPECT_FALSE(refusal(expected)) << expected;
  std::mt19937_64 random(18);
  int noticed = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = good;
    if (round % 5 == 4)
      bytes.resize(random() % bytes.size());
    else
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    write_bytes(damaged, bytes);
    const std::string found = all_of(whole, size);
    EXPECT_TRUE(refusal(found) || !summed || found == expected) << "round " << round << found;
    noticed += refusal(found);
  }
  write_bytes(damaged, good);
  EXPECT_EQ(all_of(whole, size), expected);
  return noticed;
}

TEST(interop_damage, of_a_pt_file_is_refused_or_harmless) {
  const PrivateFolder folder;
  for (const char* name : {"training.pt", "views.pt"}) {
    fs::copy_file(kFixtures + name, folder / name);
    EXPECT_GT(damage(folder / name, folder / name, true), 400) << name;
  }
}

// A .metadata has no checksum: one of another tensor's name, or of the same bytes elsewhere, is as
// good as the one that was written.
TEST(interop_damage, of_a_dcp_folder_is_refused_or_read_within_bounds) {
  const PrivateFolder folder;
  fs::copy(kFixtures + "dcp", folder / "dcp");
  EXPECT_GT(damage(folder / "dcp", folder / "dcp/__0_0.distcp", true), 400);
  EXPECT_GT(damage(folder / "dcp", folder / "dcp/__1_0.distcp", true), 300);
  EXPECT_GT(damage(folder / "dcp", folder / "dcp/.metadata", false), 500);
}

TEST(interop_damage, of_a_safetensors_folder_is_refused_or_read_within_bounds) {
  const PrivateFolder folder;
  const std::vector<Floats> a{{"fc.weight", {3, 4}}, {"fc.bias", {3}}}, b{{"out.weight", {2, 3}}};
  write_bytes(folder / "model-00001-of-00002.safetensors", safetensors_text(a));
  write_bytes(folder / "model-00002-of-00002.safetensors", safetensors_text(b));
  write_bytes(folder / "model.safetensors.index.json",
              R"({"metadata":{"total_size":84},"weight_map":{"fc.weight":)"
              R"("model-00001-of-00002.safetensors","fc.bias":"model-00001-of-00002.safetensors",)"
              R"("out.weight":"model-00002-of-00002.safetensors"}})");
  EXPECT_GT(damage(folder.path(), folder / "model-00001-of-00002.safetensors", false), 400);
  EXPECT_GT(damage(folder.path(), folder / "model.safetensors.index.json", false), 500);
}

TEST(interop_damage, of_a_folder_of_pickled_files_is_refused_or_read_within_bounds) {
  const PrivateFolder folder;
  write_pt(folder / "pytorch_model-00001-of-00002.bin", {{"fc.weight", {3, 4}}, {"fc.bias", {3}}});
  write_pt(folder / "pytorch_model-00002-of-00002.bin", {{"out.weight", {2, 3}}});
  write_bytes(folder / "pytorch_model.bin.index.json",
              R"({"metadata":{"total_size":84},"weight_map":{"fc.weight":)"
              R"("pytorch_model-00001-of-00002.bin","fc.bias":"pytorch_model-00001-of-00002.bin",)"
              R"("out.weight":"pytorch_model-00002-of-00002.bin"}})");
  EXPECT_GT(damage(folder.path(), folder / "pytorch_model-00001-of-00002.bin", true), 400);
  EXPECT_GT(damage(folder.path(), folder / "pytorch_model.bin.index.json", false), 500);
}

}  // namespace
}  // namespace trireme::interop::damage_test
