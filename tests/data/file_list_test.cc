// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/sources/file_list.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace file_list_test {

using namespace trireme;
namespace fs = std::filesystem;

namespace {

class data_file_list : public ::testing::Test {
 protected:
  void write(const std::string& name) {
    fs::create_directories(fs::path(folder / name).parent_path());
    write_file_atomic(folder / name, "text");
  }
  std::vector<std::string> names(const std::vector<std::string>& paths,
                                 const std::vector<std::string>& extensions = {}) {
    std::vector<std::string> out;
    for (auto& file : list_files(paths, extensions)) out.push_back(file.name);
    return out;
  }
  PrivateFolder folder;
};

using Names = std::vector<std::string>;

}  // namespace

TEST_F(data_file_list, folders_are_read_recursively_in_the_order_of_bytes) {
  for (auto name : {"b.h", "a/z.h", "a.h", "a/B.h", "a/deep/er/x"}) write(name);
  EXPECT_EQ(names({folder.path()}), (Names{"a.h", "a/B.h", "a/deep/er/x", "a/z.h", "b.h"}));
}

TEST_F(data_file_list, extensions_filter_folders_and_globs_but_not_files) {
  for (auto name : {"a.h", "b.txt", "c"}) write(name);
  EXPECT_EQ(names({folder.path()}, {"h"}), Names{"a.h"});
  EXPECT_EQ(names({folder / "*"}, {".txt", ".h"}), (Names{"a.h", "b.txt"}));
  EXPECT_EQ(names({folder / "c"}, {".h"}), Names{"c"});
}

TEST_F(data_file_list, hidden_entries_are_left_out) {
  for (auto name : {".git/objects/x", ".hidden", "seen"}) write(name);
  EXPECT_EQ(names({folder.path()}), Names{"seen"});
}

TEST_F(data_file_list, a_file_that_is_named_twice_comes_once) {
  write("a/x");
  fs::create_symlink(folder / "a/x", folder / "link");
  EXPECT_EQ(list_files({folder.path(), folder / "a/x", folder / "a/*"}).size(), 1u);
}

TEST_F(data_file_list, loops_of_links_end) {
  write("a/x");
  fs::create_directory_symlink(folder.path(), folder / "a/up");
  fs::create_directory_symlink(folder / "a", folder / "again");
  fs::create_symlink(folder / "nowhere", folder / "dangling");
  fs::create_symlink(folder / "self", folder / "self");
  EXPECT_EQ(list_files({folder.path()}).size(), 1u);
}

TEST_F(data_file_list, pipes_in_folders_are_left_out_and_refused_by_name) {
  write("x");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(names({folder.path()}), Names{"x"});
  EXPECT_THROW(list_files({folder / "pipe"}), UsageError);
}

TEST_F(data_file_list, what_is_missing_is_named) {
  for (const auto& path : {folder / "none", folder / "no*match", folder / "**/x", std::string()}) {
    try {
      list_files({path});
      FAIL() << path;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(path), std::string::npos);
    }
  }
  write("x");
  EXPECT_THROW(list_files({folder / "x/y"}), UsageError);
}

}  // namespace file_list_test
