// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/window_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/checkpoint/steps/written_step.h"
#include "tests/support/ranks.h"
#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/base/file/file_faults.h"
#include "trireme/checkpoint/steps/step_file.h"

namespace trireme::test::window_reader_test {
namespace {

using trireme::testing::outcome_of;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr uint64_t kMiB = uint64_t{1} << 20;

/// A step of one tensor of floats 0, 1, 2, …, and its file.
struct Written {
  explicit Written(int64_t count) {
    const std::string folder =
        write_test_step(run.path(), 1, {{"model.w", "F32", {count}, counted(count)}});
    index = read_step_index(folder);
    name = index.files.begin()->first;
    path = folder + "/" + name;
    file = std::make_unique<StepFile>(folder, name, index.files.at(name));
    bytes = read_file(path, size_t{1} << 30);
  }
  std::unique_ptr<StepFile> again() const {
    return std::make_unique<StepFile>(std::filesystem::path(path).parent_path(), name,
                                      index.files.at(name));
  }
  void make_cold() const {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ::fsync(fd.get());
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  bool has(const FileWindow& window, std::span<const uint8_t> found) const {
    return found.size() == window.size &&
           std::memcmp(found.data(), bytes.data() + window.begin, window.size) == 0;
  }
  PrivateFolder run;
  CheckpointIndex index;
  std::string name, path, bytes;
  std::unique_ptr<StepFile> file;
};

class NoFaults {
 public:
  ~NoFaults() { set_file_faults(""); }
};

}  // namespace

TEST(checkpoint_steps_window_reader, windows_come_in_their_order_wherever_they_begin_and_end) {
  const Written step(5 * 1000 * 1000 + 3);
  const uint64_t end = step.bytes.size();
  std::mt19937 random(1);
  for (const bool cold : {true, false}) {
    if (cold) step.make_cold();
    std::vector<FileWindow> windows{{step.file.get(), 0, WindowReader::kWindow},
                                    {step.file.get(), 4095, 2},
                                    {step.file.get(), end - 1, 1},
                                    {step.file.get(), end - end % 4096, end % 4096},
                                    {step.file.get(), end - kMiB - 1, kMiB + 1}};
    for (int i = 0; i < 40; ++i) {
      const uint64_t begin = random() % end;
      const uint64_t most = std::min(WindowReader::kWindow - begin % 4096, end - begin);
      windows.push_back({step.file.get(), begin, 1 + random() % most});
    }
    WindowReader reader(windows);
    for (const FileWindow& window : windows)
      EXPECT_TRUE(step.has(window, reader.next())) << window.begin << " + " << window.size;
  }
}

TEST(checkpoint_steps_window_reader, bytes_stay_while_others_are_read_ahead) {
  const Written step(8 * 1000 * 1000);
  std::vector<FileWindow> windows;
  for (uint64_t at = 0; at + kMiB <= step.bytes.size(); at += kMiB)
    windows.push_back({step.file.get(), at, kMiB});
  WindowReader reader(windows);
  for (const FileWindow& window : windows) {
    const std::span<const uint8_t> bytes = reader.next();
    for (int i = 0; i < 20; ++i) {
      std::this_thread::yield();
      ASSERT_TRUE(step.has(window, bytes)) << window.begin;
    }
  }
}

TEST(checkpoint_steps_window_reader,
     who_takes_the_window_that_failed_is_told_and_not_who_is_before) {
  const NoFaults off;
  const Written step(8 * 1000 * 1000);
  const std::vector<FileWindow> windows(6, {step.file.get(), 0, kMiB});
  const Written gone(1000);
  std::filesystem::resize_file(gone.path, 100);
  std::vector<FileWindow> some = windows;
  some[3] = {gone.file.get(), 0, 1000};
  WindowReader reader(some);
  for (size_t i = 0; i < some.size(); ++i) {
    const std::string text =
        outcome_of([&] { EXPECT_TRUE(step.has(windows[i], reader.next())) << i; });
    EXPECT_EQ(text.empty(), i != 3) << text;
    EXPECT_EQ(contains(text, gone.path), i == 3) << text;
  }
  step.make_cold();
  set_file_faults("only=" + step.path + ",1+:EIO");
  WindowReader broken(windows);
  const std::string text = outcome_of([&] { broken.next(); });
  EXPECT_TRUE(contains(text, step.path)) << text;
  EXPECT_TRUE(contains(text, "Input/output error")) << text;
}

TEST(checkpoint_steps_window_reader, it_may_go_away_at_any_time) {
  const Written step(8 * 1000 * 1000);
  const std::vector<FileWindow> windows(9, {step.file.get(), 0, WindowReader::kWindow});
  for (size_t taken = 0; taken <= windows.size(); ++taken) {
    WindowReader reader(windows);
    for (size_t i = 0; i < taken; ++i) reader.next();
  }
}

TEST(checkpoint_steps_step_file,
     pages_are_the_same_past_the_page_cache_from_it_and_where_neither_works) {
  const NoFaults off;
  const Written step(2 * 1000 * 1000 + 1);
  const uint64_t size = step.bytes.size();
  LargePages memory(WindowReader::kWindow * 2);
  const std::span<uint8_t> all(reinterpret_cast<uint8_t*>(memory.data()),
                               (size + 4095) / 4096 * 4096);
  // A call of the file's that fails once or is refused, each in turn; the last has none left.
  for (int call = 0; call < 12; ++call)
    for (const std::string fault : {"", "EIO", "EINVAL", "short"}) {
      for (const bool cold : {true, false}) {
        set_file_faults("");
        const std::unique_ptr<StepFile> file = step.again();
        if (cold)
          step.make_cold();
        else
          read_file(step.path, size_t{1} << 30);
        std::memset(all.data(), 0xee, all.size());
        if (!fault.empty())
          set_file_faults(fmt::format("only={},{}:{}", step.path, call + 1, fault));
        const std::string text = outcome_of([&] { file->read_pages(0, all, size); });
        // Only what opens the file anew may not fail.
        if (text.empty()) {
          EXPECT_EQ(std::memcmp(all.data(), step.bytes.data(), size), 0) << fault << call << cold;
        } else {
          EXPECT_TRUE(fault == "EIO" || fault == "EINVAL") << text;
        }
      }
    }
}

// As a run hides steps before it deletes them, and exchanges one that is saved again.
TEST(checkpoint_steps_step_file, pages_are_of_the_file_that_was_opened_whatever_its_name_is_now) {
  namespace fs = std::filesystem;
  for (const bool replaced : {false, true}) {
    const Written step(1000 * 1000);
    const fs::path folder = fs::path(step.path).parent_path(), hidden = step.run / "hidden";
    fs::rename(folder, hidden);
    if (replaced) {
      fs::create_directory(folder);
      std::string other = step.bytes;
      other.back() = static_cast<char>(other.back() ^ 1);
      write_text(step.path, other);
    }
    const FileWindow all{step.file.get(), 0, std::min(WindowReader::kWindow, step.bytes.size())};
    for (const bool cold : {true, false}) {
      const UniqueFd fd(::open((hidden / step.name).c_str(), O_RDONLY | O_CLOEXEC));
      if (cold) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
      WindowReader reader({all});
      EXPECT_TRUE(step.has(all, reader.next())) << replaced << cold;
    }
  }
}

}  // namespace trireme::test::window_reader_test
