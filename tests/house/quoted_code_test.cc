// SPDX-License-Identifier: Apache-2.0
// Code that a page quotes of a program ("```cpp examples/…") stands in that program, line for line.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::quoted_code_test {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find_first_not_of(' ');
    lines.push_back(first == std::string::npos ? "" : line.substr(first));
  }
  return lines;
}

bool holds(const std::vector<std::string>& all, const std::vector<std::string>& part) {
  return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

struct Quote {
  std::string page, file;
  std::vector<std::string> lines;
};

std::vector<Quote> quotes_of(const std::string& page) {
  std::vector<Quote> quotes;
  bool inside = false;
  for (const std::string& line : lines_of(read_file(page))) {
    const std::string mark = "```cpp ";
    if (line.rfind(mark, 0) == 0) {
      quotes.push_back({page, line.substr(mark.size()), {}});
      inside = true;
    } else if (line.rfind("```", 0) == 0) {
      inside = false;
    } else if (inside) {
      quotes.back().lines.push_back(line);
    }
  }
  return quotes;
}

TEST(house_quoted_code, of_every_page_stands_in_the_program_that_it_names) {
  size_t quotes = 0;
  std::vector<std::string> pages{trireme::testing::source_path("/README.md")};
  for (const auto& entry :
       std::filesystem::directory_iterator(trireme::testing::source_path("/docs")))
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  for (const std::string& page : pages) {
    for (const Quote& quote : quotes_of(page)) {
      ++quotes;
      const std::string file = trireme::testing::source_path("/") + quote.file;
      ASSERT_TRUE(std::filesystem::exists(file)) << quote.page << ": " << quote.file;
      EXPECT_TRUE(holds(lines_of(read_file(file)), quote.lines))
          << quote.page << " quotes " << quote.file << " otherwise than it is:\n"
          << ::testing::PrintToString(quote.lines);
    }
  }
  EXPECT_GE(quotes, 10u);  // docs/your_own_loop.md is there
}

}  // namespace
}  // namespace trireme::quoted_code_test
