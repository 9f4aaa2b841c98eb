// SPDX-License-Identifier: Apache-2.0
// docs/coming_from.md: what its tables call ours (the second column) is there, whatever kind of
// name it is: C++ that trireme/trireme.h reaches, a flag, a verb, a key of a configuration, a file.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/config/key_table.h"
#include "trireme/launch/flags/run_flags.h"

namespace trireme::coming_from_test {
namespace {

namespace fs = std::filesystem;

std::string without_comments(const std::string& text) {
  return std::regex_replace(text, std::regex("//[^\n]*"), "");
}

/// The code of trireme/trireme.h and of every header of ours that it reaches.
std::string public_code() {
  static const std::regex include(R"re(#include "(trireme/[^"]+)")re");
  std::vector<std::string> todo{"trireme/trireme.h"};
  std::set<std::string> seen(todo.begin(), todo.end());
  std::string all;
  while (!todo.empty()) {
    const std::string code =
        without_comments(read_file(trireme::testing::source_path("/" + todo.back())));
    todo.pop_back();
    all += code;
    for (std::sregex_iterator it(code.begin(), code.end(), include), end; it != end; ++it)
      if (seen.insert((*it)[1]).second) todo.push_back((*it)[1]);
  }
  return all;
}

class Names {
 public:
  Names() {
    static const std::regex word("[A-Za-z_][A-Za-z0-9_]*");
    const std::string code = public_code();
    for (std::sregex_iterator it(code.begin(), code.end(), word), end; it != end; ++it)
      words_.insert(it->str());
    for (const launch::RunFlag& flag : launch::run_flags()) flags_.insert(std::string(flag.name));
  }

  /// "" if everything that is named is there; else what is not.
  std::string missing(const std::string& name) const {
    if (name.rfind("trireme ", 0) == 0) return missing_in_command(name);
    if (name.rfind("--", 0) == 0) return flags_.count(name.substr(2)) ? "" : "flag " + name;
    if (name.find('/') != std::string::npos)
      return fs::exists(trireme::testing::source_path("/" + name)) ? "" : "file " + name;
    if (is_key(name)) return "";
    if (name.find('.') != std::string::npos) return "key " + name;
    std::istringstream parts(std::regex_replace(name, std::regex("::"), " "));
    for (std::string part; parts >> part;)
      if (!words_.count(part)) return "C++ name " + part;
    return "";
  }

 private:
  static bool is_key(const std::string& name) {
    return KeyTable::built_in()->find(name) != nullptr;
  }
  std::string missing_in_command(const std::string& command) const {
    std::istringstream words(command);
    std::string program, verb;
    words >> program >> verb;
    if (!fs::exists(trireme::testing::source_path("/cli/" + verb + "_verb.cc")))
      return "verb " + verb;
    for (std::string word; words >> word;)
      if (word.rfind("--", 0) == 0 && !flags_.count(word.substr(2))) return "flag " + word;
    return "";
  }
  std::set<std::string> words_, flags_;
};

std::vector<std::string> in_backticks(const std::string& text) {
  static const std::regex quoted("`([^`]+)`");
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), quoted), end; it != end; ++it)
    found.push_back((*it)[1]);
  return found;
}

/// The cells of the second column, by the heading that they stand under.
std::map<std::string, std::vector<std::string>> ours(const std::string& page) {
  std::map<std::string, std::vector<std::string>> cells;
  std::istringstream lines(page);
  std::string heading;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("## ", 0) == 0) heading = line.substr(3);
    if (line.rfind("| ", 0) != 0 || line.rfind("| you wrote", 0) == 0) continue;
    const size_t first = line.find(" | "), second = line.find(" |", first + 3);
    cells[heading].push_back(line.substr(first + 3, second - first - 3));
  }
  return cells;
}

TEST(house_coming_from, the_search_finds_what_is_there_and_misses_what_is_not) {
  const Names names;
  for (const char* there :
       {"DistributedDataParallel::no_sync", "DdpOptions::hook", "trireme run --nproc-per-node",
        "--max-restarts", "zero_optimization.stage", "examples/elastic", "init_process_group"})
    EXPECT_EQ(names.missing(there), "") << there;
  for (const char* absent :
       {"DistributedDataParallel::register_comm_hook", "trireme dance", "trireme run --gpus",
        "--gpus", "zero_optimization.stages", "examples/none", "Accelerator"})
    EXPECT_NE(names.missing(absent), "") << absent;
}

TEST(house_coming_from, every_name_of_ours_on_the_page_is_there) {
  const Names names;
  const auto cells = ours(read_file(trireme::testing::source_path("/docs/coming_from.md")));
  size_t seen = 0;
  for (const auto& [heading, column] : cells)
    for (const std::string& cell : column) {
      const auto quoted = in_backticks(cell);
      EXPECT_TRUE(!quoted.empty() || cell == "–") << heading << ": nothing is named in: " << cell;
      for (const std::string& name : quoted) {
        ++seen;
        EXPECT_EQ(names.missing(name), "") << heading << ": " << cell;
      }
    }
  EXPECT_GE(seen, 100u);
}

TEST(house_coming_from, each_system_has_its_table) {
  const auto cells = ours(read_file(trireme::testing::source_path("/docs/coming_from.md")));
  for (const char* system :
       {"PyTorch", "torchrun", "DeepSpeed", "Horovod", "Accelerate", "Lightning", "Megatron"}) {
    const auto found = std::find_if(cells.begin(), cells.end(), [&](const auto& entry) {
      return entry.first.rfind(system, 0) == 0;
    });
    ASSERT_NE(found, cells.end()) << system;
    EXPECT_GE(found->second.size(), 6u) << system;
  }
}

}  // namespace
}  // namespace trireme::coming_from_test
