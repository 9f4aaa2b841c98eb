// SPDX-License-Identifier: Apache-2.0
// What the pages of docs/, the README and CONTRIBUTING.md point at is there: files of this tree,
// and other pages.
#include <glob.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::pages_test {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = trireme::testing::source_path();

std::vector<fs::path> pages() {
  std::vector<fs::path> found{kRoot / "README.md", kRoot / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(kRoot / "docs"))
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  return found;
}

std::vector<std::string> matches_of(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    found.push_back((*it)[1]);
  return found;
}

/// `name` may be a pattern, and may leave out .h or .cc ("grad/cast_hook").
bool some_file(const std::string& name) {
  for (const char* ending : {"", ".h", ".cc"}) {
    glob_t found{};
    const bool any = ::glob((kRoot / (name + ending)).c_str(), 0, nullptr, &found) == 0;
    ::globfree(&found);
    if (any) return true;
  }
  return false;
}

}  // namespace

TEST(house_pages, every_file_that_a_page_names_is_there) {
  const std::set<std::string> tops{"trireme",  "cli",  "tests",   "bench",
                                   "examples", "docs", "scripts", "cmake"};
  const std::regex inline_path(R"(`([a-z_0-9]+/[A-Za-z0-9_./*-]*)`)");
  size_t seen = 0;
  for (const fs::path& page : pages())
    for (const std::string& name : matches_of(read_file(page.string()), inline_path)) {
      const std::string first = name.substr(0, name.find('/'));
      const bool of_library = fs::is_directory(kRoot / "trireme" / first);
      if (!tops.count(first) && !of_library) continue;  // of a run folder or a build tree
      ++seen;
      EXPECT_TRUE(some_file(tops.count(first) ? name : "trireme/" + name))
          << page << " names " << name;
    }
  EXPECT_GE(seen, 100u);
}

// Its recipes are lists of files: one that has moved makes a recipe wrong.
TEST(house_pages, every_path_in_the_recipes_for_contributors_is_there) {
  const std::regex path(
      "((?:trireme|cli|tests|bench|examples|docs|scripts|cmake)/[A-Za-z0-9_./]*[a-z])");
  size_t seen = 0;
  for (const std::string& name :
       matches_of(read_file((kRoot / "CONTRIBUTING.md").string()), path)) {
    const bool of_build_tree = name.rfind("tests/test_", 0) == 0;
    EXPECT_TRUE(of_build_tree || fs::exists(kRoot / name)) << name;
    ++seen;
  }
  EXPECT_GE(seen, 40u);
}

TEST(house_pages, every_link_leads_to_a_file) {
  // Not a link to elsewhere, nor a lambda of the code that a page shows.
  const std::regex link(R"(\]\(([^)#: ]*[./][^)#: ]*)(?:#[^)]*)?\))");
  size_t seen = 0;
  for (const fs::path& page : pages())
    for (const std::string& target : matches_of(read_file(page.string()), link)) {
      ++seen;
      EXPECT_TRUE(fs::exists(page.parent_path() / target)) << page << " links to " << target;
    }
  EXPECT_GE(seen, 30u);
}

// A page that nothing leads to is not read.
TEST(house_pages, the_readme_leads_to_every_page) {
  const std::string readme = read_file((kRoot / "README.md").string());
  for (const fs::path& page : pages())
    if (page.filename() != "README.md") {
      const std::string link = "](" + fs::relative(page, kRoot).string() + ")";
      EXPECT_NE(readme.find(link), std::string::npos) << page;
    }
}

}  // namespace trireme::pages_test
