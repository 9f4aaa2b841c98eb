// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/write_behind.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/support/ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_faults.h"

namespace trireme::test::write_behind_test {
namespace {

using trireme::testing::outcome_of;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr size_t kEach = 100'000;

class NoFaults {
 public:
  ~NoFaults() { set_file_faults(""); }
};

}  // namespace

TEST(checkpoint_steps_write_behind, memory_is_free_again_when_two_more_pieces_were_taken) {
  PrivateFolder folder;
  const std::string path = folder / "file";
  std::string expected;
  {
    OutputFile file(path);
    std::array<std::string, WriteBehind::kPieces + 1> memory;
    WriteBehind behind;
    for (size_t i = 0; i < 50; ++i) {
      std::string& bytes = memory[i % memory.size()];
      bytes.assign(kEach, static_cast<char>('a' + i % 26));
      expected += bytes;
      behind.write(file, i * kEach, bytes.data(), bytes.size());
    }
    behind.wait();
    file.finish();
  }
  EXPECT_TRUE(read_file(path, size_t{1} << 28) == expected);
}

TEST(checkpoint_steps_write_behind,
     behind_a_piece_that_failed_none_is_written_and_the_error_comes_once) {
  const NoFaults off;
  PrivateFolder folder;
  const std::string path = folder / "file", bytes(kEach, 'x');
  for (int fails = 1; fails <= 4; ++fails) {
    const std::string here = path + std::to_string(fails);
    OutputFile file(here);
    WriteBehind behind;
    set_file_faults(fmt::format("only={},{}:ENOSPC", here, fails));
    size_t errors = 0;
    std::string text;
    const auto attempt = [&](const auto& body) {
      try {
        body();
        return true;
      } catch (const ResourceError& e) {
        ++errors, text = e.what();
        return false;
      }
    };
    bool good = true;
    for (size_t i = 0; good && i < 4; ++i)
      good = attempt([&] { behind.write(file, i * kEach, bytes.data(), bytes.size()); });
    if (good) attempt([&] { behind.wait(); });
    EXPECT_EQ(errors, 1u) << fails;
    EXPECT_TRUE(contains(text, here) && contains(text, "No space left")) << text;
    EXPECT_TRUE(attempt([&] { behind.wait(); })) << "the error came twice";
    set_file_faults("");
    file.finish();
    EXPECT_EQ(read_file(here, size_t{1} << 28).size(), (static_cast<size_t>(fails) - 1) * kEach);
  }
}

TEST(checkpoint_steps_write_behind, who_goes_away_waits_for_what_is_under_way) {
  PrivateFolder folder;
  const std::string bytes(kEach, 'x');
  OutputFile file(folder / "file");
  {
    WriteBehind behind;
    behind.write(file, 0, bytes.data(), bytes.size());
    behind.write(file, kEach, bytes.data(), bytes.size());
  }
  EXPECT_EQ(file.written(), 2 * kEach);
}

}  // namespace trireme::test::write_behind_test
