// SPDX-License-Identifier: Apache-2.0
// docs/architecture.md and README.md point into the code: each path is there, and each name stands
// in the file that it is given for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::architecture_test {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = trireme::testing::source_path();

std::string page_text(const std::string& page) { return read_file((kRoot / page).string()); }

/// Without fenced blocks: what programs print is not a place in the tree.
std::string prose_of(const std::string& text) {
  std::istringstream in(text);
  std::string prose;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("```", 0) == 0) inside = !inside;
    if (!inside) prose += line + "\n";
  }
  return prose;
}

struct Place {
  std::string path;
  std::vector<std::string> names;  // that occur in it
};

/// "trireme/grad/reducer.cc: Reducer::ready, launch", wherever it stands.
std::vector<Place> places_in(const std::string& text) {
  static const std::regex place(
      R"((^|[^A-Za-z0-9_./-])((?:trireme|cli|tests|bench|examples|docs|scripts|cmake)/[A-Za-z0-9_./-]*[A-Za-z0-9_]|[A-Z]+\.md))"
      R"((?:: ([A-Za-z_][A-Za-z0-9_:]*(?:, [A-Za-z_][A-Za-z0-9_:]*)*))?)");
  static const std::regex comma(", ");
  std::vector<Place> places;
  for (std::sregex_iterator it(text.begin(), text.end(), place), end; it != end; ++it) {
    Place found{(*it)[2], {}};
    const std::string names = (*it)[3];
    for (std::sregex_token_iterator name(names.begin(), names.end(), comma, -1), last; name != last;
         ++name)
      if (name->length() > 0) found.names.push_back(*name);
    places.push_back(found);
  }
  return places;
}

/// The code of a file, without what its comments say.
std::string code_of(const std::string& path) {
  return std::regex_replace(page_text(path), std::regex("//[^\n]*"), "");
}

bool has_name(const std::string& code, const std::string& name) {
  const auto is_part = [&](size_t at) {
    return at < code.size() &&
           (std::isalnum(static_cast<unsigned char>(code[at])) || code[at] == '_');
  };
  for (size_t at = code.find(name); at != std::string::npos; at = code.find(name, at + 1))
    if (!(at > 0 && is_part(at - 1)) && !is_part(at + name.size())) return true;
  return false;
}

void expect_there(const std::string& page, const std::vector<Place>& places) {
  for (const Place& place : places) {
    EXPECT_TRUE(fs::exists(kRoot / place.path)) << page << " names " << place.path;
    if (!fs::exists(kRoot / place.path)) continue;
    if (place.names.empty() || !fs::is_regular_file(kRoot / place.path)) {
      EXPECT_TRUE(place.names.empty()) << page << ": " << place.path << " is not a file";
      continue;
    }
    const std::string code = code_of(place.path);
    for (const std::string& name : place.names)
      EXPECT_TRUE(has_name(code, name)) << page << " looks for " << name << " in " << place.path;
  }
}

/// The items of the numbered list under a heading; lines that go on belong to their item.
std::vector<std::string> numbered_list(const std::string& text, const std::string& heading) {
  std::istringstream in(text);
  std::vector<std::string> items;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("## ", 0) == 0) inside = line.rfind("## " + heading, 0) == 0;
    if (!inside) continue;
    if (!line.empty() && std::isdigit(static_cast<unsigned char>(line[0])))
      items.push_back(line);
    else if (!items.empty() && line.rfind("   ", 0) == 0)
      items.back() += " " + line;
  }
  return items;
}

size_t names_in(const std::vector<Place>& places) {
  size_t count = 0;
  for (const Place& place : places) count += place.names.size();
  return count;
}

}  // namespace

TEST(house_architecture, what_a_page_calls_a_place_is_read_as_one) {
  const auto places =
      places_in("see `trireme/a/b.cc: B::c, d`, (trireme/e), x/trireme/f and README.md:");
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[0].path, "trireme/a/b.cc");
  EXPECT_EQ(places[0].names, (std::vector<std::string>{"B::c", "d"}));
  EXPECT_EQ(places[1].path, "trireme/e");
  EXPECT_EQ(places[2].path, "README.md");
  EXPECT_TRUE(has_name("x = step(1);", "step"));
  EXPECT_FALSE(has_name("x = finish_step(1);", "step"));
}

// Drawings too: they are most of the page.
TEST(house_architecture, every_place_in_the_code_that_the_page_names_is_there) {
  const auto places = places_in(page_text("docs/architecture.md"));
  EXPECT_GE(places.size(), 50u);
  EXPECT_GE(names_in(places), 35u);
  expect_there("docs/architecture.md", places);
}

TEST(house_architecture, every_path_of_the_readme_is_there) {
  const auto places = places_in(prose_of(page_text("README.md")));
  EXPECT_GE(places.size(), 20u);
  expect_there("README.md", places);
}

TEST(house_architecture, six_files_are_to_be_read_and_each_is_one) {
  const auto items = numbered_list(page_text("docs/architecture.md"), "Six files to read");
  ASSERT_EQ(items.size(), 6u);
  std::set<std::string> files;
  for (const std::string& item : items) {
    const auto places = places_in(item);
    ASSERT_FALSE(places.empty()) << item;
    EXPECT_TRUE(fs::is_regular_file(kRoot / places[0].path)) << places[0].path;
    files.insert(places[0].path);
  }
  EXPECT_EQ(files.size(), 6u);
}

// Each file of the walk leads to the next one, and the last ones hold the line.
TEST(house_architecture, the_walk_from_the_readme_to_a_buckets_launch_takes_five_files) {
  const auto items = numbered_list(page_text("docs/architecture.md"), "A walk");
  ASSERT_GE(items.size(), 4u);
  ASSERT_LE(items.size(), 5u);
  std::vector<std::string> files;
  for (const std::string& item : items) {
    const auto places = places_in(item);
    ASSERT_FALSE(places.empty()) << item;
    files.push_back(places[0].path);
  }
  EXPECT_EQ(files[0], "README.md");
  EXPECT_NE(page_text(files[0]).find(files[1]), std::string::npos) << files[1];
  for (size_t i = 2; i < files.size(); ++i)
    EXPECT_NE(page_text(files[1]).find(files[i]), std::string::npos) << files[i];
  // What the items quote of the code stands there.
  static const std::regex quote("`([^`]*[(;][^`]*)`");
  size_t quotes = 0;
  for (size_t i = 2; i < items.size(); ++i)
    for (std::sregex_iterator it(items[i].begin(), items[i].end(), quote), end; it != end; ++it) {
      ++quotes;
      EXPECT_NE(code_of(files[i]).find((*it)[1]), std::string::npos)
          << files[i] << " does not say " << (*it)[1];
    }
  EXPECT_GE(quotes, 3u);
  EXPECT_NE(code_of(files.back()).find("all_reduce(bucket.buffer"), std::string::npos);
}

TEST(house_architecture, the_readme_fits_on_two_screens) {
  const std::string text = page_text("README.md");
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 120);
}

}  // namespace trireme::architecture_test
