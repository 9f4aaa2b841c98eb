// SPDX-License-Identifier: Apache-2.0
// check<E>(::call() == 0, "…{}", errno_text()) may name an older error: arguments are evaluated in
// any order, and a function of ours that makes the call is no different. if (::call() != 0)
// fail<E>(…) and check<E>(ok, …) with an earlier `ok` do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::errno_test {
namespace {

namespace fs = std::filesystem;

/// The arguments of the call whose bracket ends before `at`, split at the first comma of its own.
std::pair<std::string, std::string> condition_and_rest(const std::string& text, size_t at) {
  int depth = 1;
  bool quoted = false;
  size_t comma = std::string::npos, i = at;
  for (; i < text.size() && depth > 0; ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == ',' && depth == 1 && comma == std::string::npos) comma = i;
  }
  if (comma == std::string::npos) return {text.substr(at, i - at), ""};
  return {text.substr(at, comma - at), text.substr(comma, i - comma)};
}

/// Line numbers at which errno is read beside the call that sets it.
std::vector<long> unordered_errnos(const std::string& text) {
  static const std::regex check(R"(\bcheck<\w+>\()"),
      call(R"((^|[^\w.>])(?!static_cast|sizeof)(\w*::)*[a-z]\w*\()");
  std::vector<long> lines;
  for (std::sregex_iterator it(text.begin(), text.end(), check), end; it != end; ++it) {
    const auto [condition, rest] =
        condition_and_rest(text, static_cast<size_t>(it->position() + it->length()));
    if (rest.find("errno_text()") == std::string::npos) continue;
    if (std::regex_search(condition, call))
      lines.push_back(1 + std::count(text.begin(), text.begin() + it->position(), '\n'));
  }
  return lines;
}

TEST(house_errno, the_search_finds_such_a_line_and_no_other) {
  EXPECT_EQ(unordered_errnos("\ncheck<E>(::f(\",)\", 1) == 0,\n \"{}\",\n errno_text());"),
            std::vector<long>{2});
  EXPECT_EQ(unordered_errnos("check<E>(fd && std::fflush(f) == 0, \"{}\", errno_text());").size(),
            1u);
  EXPECT_EQ(unordered_errnos("check<E>(calls::unlink(p) == 0, \"{}\", errno_text());").size(), 1u);
  EXPECT_EQ(unordered_errnos("check<E>(remove_it(), \"{}\", errno_text());").size(), 1u);
  EXPECT_EQ(unordered_errnos("check<E>(static_cast<bool>(fd), \"{}\", errno_text());").size(), 0u);
  EXPECT_EQ(unordered_errnos("check<E>(ok, \"{}\", errno_text()); check<E>(::f(), \"no\");"),
            std::vector<long>{});
  EXPECT_EQ(unordered_errnos("check<E>(code == 0, \"{}\", code ? errno_text() : ::name(code));"),
            std::vector<long>{});
}

TEST(house_errno, is_read_after_the_call_that_set_it) {
  size_t read = 0;
  for (const char* top : {"trireme", "cli", "bench", "tests", "examples"}) {
    const fs::path folder = fs::path(trireme::testing::source_path()) / top;
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const fs::path& path = entry.path();
      if (path.extension() != ".h" && path.extension() != ".cc") continue;
      if (path.filename() == "errno_test.cc") continue;
      ++read;
      for (long line : unordered_errnos(read_file(path.string())))
        ADD_FAILURE() << path.string() << ":" << line
                      << ": errno_text() may be evaluated before the call in the condition: write "
                         "if (…) fail<E>(…)";
    }
  }
  EXPECT_GT(read, 100u);
}

}  // namespace
}  // namespace trireme::errno_test
