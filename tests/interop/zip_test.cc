// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/interop/pickles.h"
#include "trireme/interop/zip/crc32.h"
#include "trireme/interop/zip/zip_layout.h"
#include "trireme/interop/zip/zip_reader.h"
#include "trireme/interop/zip/zip_writer.h"

namespace trireme::interop::zip_test {
namespace {

using namespace trireme::interop::testing;

std::string archive(const std::vector<std::pair<std::string, std::string>>& records,
                    uint64_t classic_most = 0xFFFFFFFE) {
  std::string out;
  ZipWriter zip(
      [&](const void* bytes, size_t size) { out.append(static_cast<const char*>(bytes), size); },
      classic_most);
  for (const auto& [name, bytes] : records) zip.add(name, bytes_of(bytes));
  zip.finish();
  return out;
}
std::string refused(const std::string& bytes) {
  return said([&] { ZipReader(bytes_of(bytes), "x.pt"); });
}
std::string text_of(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The nth place of four bytes.
size_t place(const std::string& bytes, uint32_t mark, int nth = 0) {
  size_t at = bytes.find(little(mark, 4));
  while (nth-- > 0) at = bytes.find(little(mark, 4), at + 1);
  return at;
}
std::string with(std::string bytes, size_t at, const std::string& patch) {
  return bytes.replace(at, patch.size(), patch);
}

const std::vector<std::pair<std::string, std::string>> kTwo = {{"a/one", "first"},
                                                               {"a/two", std::string(100, 'x')}};

TEST(interop_zip, the_checksum_is_that_of_zip_files) {
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xCBF43926u);
  EXPECT_EQ(crc32({}), 0u);
  EXPECT_EQ(crc32(bytes_of("The quick brown fox jumps over the lazy dog")), 0x414FA339u);
}

TEST(interop_zip, records_read_back_and_begin_at_multiples_of_64) {
  for (uint64_t classic_most :
       {uint64_t{0xFFFFFFFE}, uint64_t{50}, uint64_t{0}}) {  // zip64 for none, one and both
    const std::string bytes = archive(kTwo, classic_most);
    const ZipReader zip(bytes_of(bytes), "x.pt");
    ASSERT_EQ(zip.records().size(), 2u);
    for (const auto& [name, content] : kTwo) {
      const ZipRecord* record = zip.find(name);
      ASSERT_NE(record, nullptr);
      EXPECT_EQ(text_of(zip.bytes(*record)), content);
      EXPECT_EQ(record->begin % 64, 0u);
      EXPECT_NO_THROW(zip.verify(*record));
    }
    EXPECT_EQ(zip.find("a/three"), nullptr);
  }
}

TEST(interop_zip, an_archive_of_nothing_is_one) {
  const std::string bytes = archive({});
  EXPECT_TRUE(ZipReader(bytes_of(bytes), "x.pt").records().empty());
}

TEST(interop_zip, a_byte_that_changed_is_noticed_on_demand) {
  std::string bytes = archive(kTwo);
  bytes[bytes.find("first")] = 'F';
  const ZipReader zip(bytes_of(bytes), "x.pt");
  EXPECT_SAYS(said([&] { zip.verify(*zip.find("a/one")); }),
              "Corrupt: x.pt: record 'a/one' does not have its CRC-32");
}

TEST(interop_zip, an_archive_cut_short_anywhere_is_refused) {
  const std::string bytes = archive(kTwo);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(refused(bytes.substr(0, size)).rfind("Corrupt: ", 0), 0u) << size;
  EXPECT_SAYS(refused(bytes + "x"), "does not end as a zip archive");
  EXPECT_NE(refused("x" + bytes), "");
}

TEST(interop_zip, hostile_names_are_refused) {
  for (const std::string& name :
       {std::string("../a"), std::string("a/../b"), std::string("a/.."), std::string("/a"),
        std::string("a\\b"), std::string(""), std::string("a\0b", 3), std::string("\x1b[2J")})
    EXPECT_SAYS(refused(archive({{name, "x"}})), "which no writer of torch gives");
  EXPECT_EQ(refused(archive({{"a/..b/c..", "x"}})), "");
  EXPECT_SAYS(refused(archive({{"a", "x"}, {"a", "y"}})), "is there twice");
}

TEST(interop_zip, encryption_and_foreign_methods_are_refused_and_compression_when_it_is_read) {
  const std::string bytes = archive(kTwo);
  const size_t central = place(bytes, kCentralMark);
  EXPECT_SAYS(refused(with(bytes, central + 8, little(0x0801, 2))),
              "UsageError: x.pt: record 'a/one' is encrypted");
  EXPECT_SAYS(refused(with(bytes, central + 10, little(12, 2))), "is compressed by method 12");
  // Compressed, and says that its five bytes are 4 GiB: nothing is unpacked.
  const size_t local = place(bytes, kLocalMark);
  std::string bomb = with(with(bytes, central + 10, little(8, 2)), local + 8, little(8, 2));
  bomb = with(bomb, central + 24, little(0xFFFFFFF0, 4));
  const ZipReader zip(bytes_of(bomb), "x.pt");
  EXPECT_SAYS(said([&] { zip.bytes(*zip.find("a/one")); }),
              "UsageError: x.pt: record 'a/one' is compressed");
  EXPECT_SAYS(refused(with(bytes, central + 24, little(0xFFFFFFF0, 4))),
              "is not compressed and yet has 5 bytes for");
}

TEST(interop_zip, records_over_each_other_or_beyond_the_file_are_refused) {
  const std::string bytes = archive(kTwo);
  const size_t first = place(bytes, kCentralMark), second = place(bytes, kCentralMark, 1);
  // Both at the first's place: its name says which it is.
  EXPECT_SAYS(refused(with(bytes, second + 42, little(0, 4))),
              "its header describes another record");
  for (uint64_t size : {uint64_t{200}, uint64_t{bytes.size()}, uint64_t{0xFFFFFFF0}}) {
    std::string longer =
        with(with(bytes, first + 20, little(size, 4)), first + 24, little(size, 4));
    EXPECT_EQ(refused(longer).rfind("Corrupt: ", 0), 0u) << size;
  }
  std::string over = with(with(bytes, first + 20, little(70, 4)), first + 24, little(70, 4));
  EXPECT_SAYS(refused(over), "record 'a/one' reaches into what follows it");
  EXPECT_SAYS(refused(with(bytes, first + 42, little(bytes.size() - 10, 4))), "no header at byte");
}

TEST(interop_zip, sizes_of_2_to_the_63_are_refused) {
  const std::string bytes = archive({{"a", "first"}}, 0);  // all in zip64 fields
  const size_t extra = place(bytes, kCentralMark) + kCentralBytes + 1;
  for (uint64_t size : {uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 100})
    for (size_t field : {4u, 12u, 20u})
      EXPECT_EQ(refused(with(bytes, extra + field, little(size, 8))).rfind("Corrupt: ", 0), 0u);
  const std::string both = with(with(bytes, extra + 4, little(UINT64_MAX - 100, 8)), extra + 12,
                                little(UINT64_MAX - 100, 8));
  EXPECT_SAYS(refused(both), "are not all there");
}

TEST(interop_zip, a_directory_elsewhere_or_of_more_records_than_it_holds_is_refused) {
  const std::string bytes = archive(kTwo);
  const size_t end64 = place(bytes, kEnd64Mark), end = place(bytes, kEndMark),
               locator = place(bytes, kLocatorMark);
  const auto both = [&](uint64_t count) {
    return with(with(with(bytes, end64 + 24, little(count, 8)), end64 + 32, little(count, 8)),
                end + 8, little(0xFFFFFFFF, 4));
  };
  EXPECT_SAYS(refused(both(1'000'001)), "the most that we read is 1000000");
  EXPECT_SAYS(refused(both(1'000'000)), "cannot list 1000000 records");
  EXPECT_SAYS(refused(both(1)), "longer than its records");
  EXPECT_SAYS(refused(both(3)), "cannot list 3 records");
  EXPECT_SAYS(refused(with(bytes, end + 10, little(5, 2))),
              "its two ends describe different archives");
  EXPECT_SAYS(refused(with(bytes, end64 + 48, little(UINT64_MAX, 8))), "Corrupt");
  EXPECT_SAYS(refused(with(bytes, locator + 8, little(3, 8))),
              "its zip64 end is not where its locator says");
  EXPECT_SAYS(refused(with(bytes, end + 20, little(1, 2))), "announces a comment");
  EXPECT_SAYS(refused(with(with(bytes, end64 + 16, little(1, 4)), end + 4, little(1, 2))),
              "over several files");
}

}  // namespace
}  // namespace trireme::interop::zip_test
