// SPDX-License-Identifier: Apache-2.0
// No text of the tree still has the lines that git leaves where two changes met.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::merge_marks_test {
namespace {

namespace fs = std::filesystem;

/// The numbers of the lines that begin as git's do. A row of "=" alone underlines titles, too.
std::vector<long> marked_lines(const std::string& text) {
  std::vector<long> found;
  std::istringstream lines(text);
  long number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    for (const char mark : {'<', '>', '|'})
      if (line.rfind(std::string(7, mark), 0) == 0 && (line.size() == 7 || line[7] == ' '))
        found.push_back(number);
  }
  return found;
}

}  // namespace

TEST(house_merge_marks, the_search_finds_each_kind_and_nothing_else) {
  const std::string ours(7, '<'), base(7, '|'), theirs(7, '>');
  EXPECT_EQ(marked_lines(ours + " HEAD\na\n" + base + " 1\n" + std::string(7, '=') + "\nb\n" +
                         theirs + " other\n"),
            (std::vector<long>{1, 3, 6}));
  EXPECT_EQ(marked_lines(" " + ours + " HEAD\n" + ours + "<\nTitle\n=======\n"),
            std::vector<long>{});
}

TEST(house_merge_marks, are_in_no_source_page_or_script) {
  const fs::path root = trireme::testing::source_path();
  size_t seen = 0;
  const auto look_at = [&](const fs::path& path) {
    ++seen;
    for (const long line : marked_lines(read_file(path.string())))
      ADD_FAILURE() << fs::relative(path, root) << ":" << line << " is a mark of a merge";
  };
  const std::set<std::string> texts{".h",     ".cc",  ".md",   ".py", ".sh",
                                    ".cmake", ".txt", ".json", ""};
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.is_regular_file() && texts.count(entry.path().extension().string()))
      look_at(entry.path());
  for (const char* folder : {"trireme", "tests", "docs", "bench", "examples", "scripts"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file() && texts.count(entry.path().extension().string()))
        look_at(entry.path());
  EXPECT_GE(seen, 1000u);
}

}  // namespace trireme::merge_marks_test
