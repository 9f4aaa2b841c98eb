// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

// For rules about single lines of the sources that few files may break, each for a reason.
namespace trireme::testing {

/// A file that may, and why. By file: a new one says why.
struct Exception {
  const char* path;  // from the repository's root
  const char* reason;
};

/// The .h and .cc files of a folder, in order, from the repository's root.
inline std::vector<std::string> sources_in(const std::string& folder) {
  const std::filesystem::path root = trireme::testing::source_path();
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder))
    if (entry.path().extension() == ".h" || entry.path().extension() == ".cc")
      found.push_back(std::filesystem::relative(entry.path(), root).generic_string());
  std::sort(found.begin(), found.end());
  return found;
}

using LineTest = std::function<bool(const std::string& code)>;

/// The numbers of the lines whose code, without comments to the end of the line, is so.
inline std::vector<long> lines_where(const std::string& text, const LineTest& is_so) {
  std::vector<long> lines;
  long number = 0;
  for (size_t begin = 0; begin <= text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string code = text.substr(begin, end - begin);
    if (is_so(code.substr(0, code.find("//")))) lines.push_back(number + 1);
    begin = end + 1;
  }
  return lines;
}

/// Each file of `paths` with such a line is among the exceptions, and each exception has one.
inline void expect_only_in(const std::vector<Exception>& exceptions,
                           const std::vector<std::string>& paths, const LineTest& is_so,
                           const std::string& what_to_do) {
  std::set<std::string> used;
  for (const std::string& path : paths) {
    const auto lines = lines_where(read_file(trireme::testing::source_path() + "/" + path), is_so);
    if (lines.empty()) continue;
    if (std::any_of(exceptions.begin(), exceptions.end(),
                    [&](const Exception& e) { return path == e.path; }))
      used.insert(path);
    else
      ADD_FAILURE() << path << ":" << lines.front() << " " << what_to_do;
  }
  for (const Exception& e : exceptions)
    EXPECT_TRUE(used.count(e.path))
        << e.path << " (" << e.reason << ") does not any more: take it off the list";
}

}  // namespace trireme::testing
