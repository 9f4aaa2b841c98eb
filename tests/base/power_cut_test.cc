// SPDX-License-Identifier: Apache-2.0
#include "tests/support/power_cut.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "trireme/base/fd.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"

// The tests' own tool, on sequences whose outcome a person can tell.
namespace power_cut_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

/// "a=1 b/c=2": all files in a folder with their bytes, sorted; "b/" for an empty folder.
std::string contents(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& item : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = std::filesystem::relative(item.path(), folder).string();
    if (item.is_regular_file()) found.push_back(name + "=" + read_file(item.path().string()));
    if (item.is_directory() && std::filesystem::is_empty(item.path())) found.push_back(name + "/");
  }
  std::sort(found.begin(), found.end());
  std::string text;
  for (const auto& name : found) text += (text.empty() ? "" : " ") + name;
  return text;
}

/// A folder with a=1, and what a disk shows of it after `body` was recorded.
class Cut {
 public:
  explicit Cut(const std::function<void(const std::string& root)>& body) {
    std::filesystem::create_directory(folder_ / "disk");
    std::ofstream(folder_ / "disk/a") << "1";
    disk_.emplace(folder_ / "disk", folder_ / "record");
    {
      const FileFaults faults("only=" + (folder_ / "disk") + ",record=" + (folder_ / "record"));
      body(folder_ / "disk");
    }
    disk_->read();
  }
  size_t calls() const { return disk_->calls.size(); }
  std::string shows(Survives survives, size_t count, unsigned seed = 0) {
    const std::string into = folder_ / ("cut" + std::to_string(made_++));
    disk_->after(count).rebuild(into, survives, seed);
    return contents(into);
  }
  std::string shows(Survives survives) { return shows(survives, calls()); }
  std::string really() const { return contents(folder_ / "disk"); }

 private:
  PrivateFolder folder_;
  std::optional<RecordedDisk> disk_;
  int made_ = 0;
};

void put(const std::string& path, std::string_view bytes, bool sync) {
  UniqueFd fd(file_calls::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  ASSERT_EQ(file_calls::write(fd.get(), bytes.data(), bytes.size()),
            static_cast<ssize_t>(bytes.size()));
  ASSERT_EQ(sync ? file_calls::fsync(fd.get()) : 0, 0);
}

}  // namespace

TEST(base_power_cut, bytes_and_names_are_lost_apart) {
  Cut bytes([](const std::string& root) { put(root + "/a", "22", false); });
  EXPECT_EQ(bytes.really(), "a=22");
  EXPECT_EQ(bytes.shows(Survives::synced), "a=1");
  EXPECT_EQ(bytes.shows(Survives::names), "a=1");

  Cut name([](const std::string& root) { put(root + "/b", "2", true); });
  EXPECT_EQ(name.shows(Survives::synced), "a=1");
  EXPECT_EQ(name.shows(Survives::names), "a=1 b=2");

  Cut neither([](const std::string& root) { put(root + "/b", "2", false); });
  EXPECT_EQ(neither.shows(Survives::names), "a=1 b=");

  Cut both([](const std::string& root) {
    put(root + "/b", "2", true);
    fsync_path(root);
  });
  EXPECT_EQ(both.shows(Survives::synced), "a=1 b=2");
}

TEST(base_power_cut, a_rename_without_a_sync_before_it_may_show_an_empty_file) {
  Cut cut([](const std::string& root) {
    put(root + "/b", "2", false);
    ASSERT_EQ(file_calls::rename(root + "/b", root + "/a"), 0);
  });
  EXPECT_EQ(cut.really(), "a=2");
  EXPECT_EQ(cut.shows(Survives::synced), "a=1");
  EXPECT_EQ(cut.shows(Survives::names), "a=");
}

TEST(base_power_cut, a_file_that_is_published_atomically_is_the_old_one_or_the_new_at_every_call) {
  Cut cut([](const std::string& root) { write_file_atomic(root + "/a", "2"); });
  ASSERT_EQ(cut.calls(), 7u);
  for (size_t n = 0; n <= cut.calls(); ++n) {
    EXPECT_EQ(cut.shows(Survives::synced, n), n < 7 ? "a=1" : "a=2");
    for (unsigned seed = 0; seed < 10; ++seed) {
      const std::string shown = cut.shows(Survives::some, n, seed);
      EXPECT_TRUE(shown.ends_with("a=1") || shown == "a=2") << n << ": " << shown;
    }
  }
}

TEST(base_power_cut, folders_exchanges_and_removals_follow_their_parents_sync) {
  Cut cut([](const std::string& root) {
    make_folders(root + "/x/y");
    put(root + "/x/y/f", "3", true);
    fsync_path(root + "/x/y");
    ASSERT_EQ(file_calls::exchange(root + "/a", root + "/x"), 0);
    ASSERT_EQ(file_calls::unlink(root + "/x"), 0);
  });
  EXPECT_EQ(cut.really(), "a/y/f=3");
  EXPECT_EQ(cut.shows(Survives::synced), "a=1 x/y/f=3");
  EXPECT_EQ(cut.shows(Survives::names), "a/y/f=3");
  EXPECT_EQ(cut.shows(Survives::names, cut.calls() - 1), "a/y/f=3 x=1");
}

TEST(base_power_cut, what_was_deleted_in_a_folder_may_stay_deleted_while_its_new_name_is_lost) {
  Cut cut([](const std::string& root) {
    make_folders(root + "/x");
    put(root + "/x/f", "3", true);
    fsync_path(root + "/x");
    ASSERT_EQ(file_calls::rename(root + "/x", root + "/y"), 0);
    ASSERT_EQ(file_calls::unlink(root + "/y/f"), 0);
  });
  bool seen = false;
  for (unsigned seed = 0; seed < 50; ++seed)
    seen = seen || cut.shows(Survives::some, cut.calls(), seed) == "a=1 x/";
  EXPECT_TRUE(seen);
}

}  // namespace power_cut_test
