// SPDX-License-Identifier: Apache-2.0
// The house as docs/design.md draws it: who may include whom is read from its tables, so that the
// page and the code cannot part.
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::layout_test {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = trireme::testing::source_path();

std::vector<std::string> lines_of(const fs::path& path) {
  std::istringstream text(read_file(path.string()));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

/// Paths relative to the root, sorted.
std::vector<std::string> files_under(const std::string& folder,
                                     const std::function<bool(const fs::path&)>& wanted) {
  std::vector<std::string> found;
  if (!fs::exists(kRoot / folder)) return found;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
    if (entry.is_regular_file() && wanted(entry.path()))
      found.push_back(fs::relative(entry.path(), kRoot).generic_string());
  std::sort(found.begin(), found.end());
  return found;
}

bool is_source(const fs::path& path) {
  return path.extension() == ".h" || path.extension() == ".cc";
}

std::vector<std::string> all_matches(const std::string& text, const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    found.push_back((*it)[1]);
  return found;
}

// The house of docs/design.md §1.
struct House {
  std::vector<std::string> folders;  // under trireme/, from the top of the tree down
  std::set<std::string> torch_free;  // and "comm/local"
  std::map<std::string, std::vector<std::string>> may;  // folder → folders and patterns of paths
};

House read_house() {
  House house;
  const std::vector<std::string> page = lines_of(kRoot / "docs/design.md");
  const std::regex folder_line(R"(^  ([a-z]+)/ .*)");
  bool in_tree = false, group_torch_free = false, in_table = false;
  std::vector<std::string> rows, sees_all;
  for (const std::string& line : page) {
    std::smatch match;
    const bool says_no_torch = line.find("(no torch)") != std::string::npos;
    if (line == "trireme/") in_tree = true;
    if (line.rfind("cli/", 0) == 0) in_tree = false;
    if (in_tree && line.find("──") != std::string::npos) group_torch_free = says_no_torch;
    if (in_tree && std::regex_match(line, match, folder_line)) {
      house.folders.push_back(match[1]);
      if (group_torch_free || says_no_torch) house.torch_free.insert(match[1]);
    }
    if (line.rfind("| folder | may include", 0) == 0)
      in_table = true;
    else if (in_table && line.rfind("|---", 0) == 0)
      continue;
    else if (in_table && line.rfind("| ", 0) == 0)
      rows.push_back(line);
    else
      in_table = false;
  }
  const std::regex quoted("`([^`]+)`"), inside(R"(\(([^)]*)\))"),
      alone(R"(`([a-z_/]+)`[^:`]*: ((`[a-z_/.]+` )+)alone)");
  for (const std::string& row : rows) {
    const size_t bar = row.find('|', 1);
    const std::vector<std::string> names = all_matches(row.substr(0, bar), quoted);
    std::string cell = row.substr(bar);
    std::vector<std::string> allowed;
    // In brackets stand remarks, patterns of single files, and rows of their own ("… `x` alone").
    for (const std::string& remark : all_matches(cell, inside)) {
      for (const std::string& item : all_matches(remark, quoted))
        if (item.find('*') != std::string::npos) allowed.push_back("trireme/" + item);
      std::smatch match;
      if (std::regex_search(remark, match, alone)) {
        house.may[match[1]] = all_matches(match[2], quoted);
        house.torch_free.insert(match[1]);
      }
    }
    cell = std::regex_replace(cell, inside, "");
    for (const std::string& item : all_matches(cell, quoted))
      allowed.push_back(item.find('*') != std::string::npos ? "trireme/" + item : item);
    for (const std::string& name : names) {
      house.may[name] = allowed;
      if (cell.find("everything below") == std::string::npos) continue;
      const auto at =
          std::find(house.folders.begin(), house.folders.end(), name.substr(0, name.find('/')));
      if (at != house.folders.end())
        house.may[name].insert(house.may[name].end(), at + 1, house.folders.end());
      sees_all.push_back(name);
    }
  }
  for (const std::string& name : sees_all) {
    for (const auto& [folder, row] : house.may)
      if (folder.find('/') != std::string::npos) house.may[name].push_back(folder);
  }
  return house;
}

/// "trireme/comm/local/arena.h" → "comm/local" where that has a row of its own, else "comm".
std::string folder_of(const House& house, const std::string& path) {
  const std::string inside = path.substr(std::string("trireme/").size());
  for (const auto& [folder, row] : house.may)
    if (folder.find('/') != std::string::npos && inside.rfind(folder + "/", 0) == 0) return folder;
  return inside.substr(0, inside.find('/'));
}

bool allowed(const House& house, const std::string& file, const std::string& include) {
  const std::string from = folder_of(house, file), to = folder_of(house, include);
  if (from == to) return true;
  // A folder may include its inner folders; those with a row of their own do not look back.
  if (to.rfind(from + "/", 0) == 0) return true;
  const auto row = house.may.find(from);
  if (row == house.may.end()) return false;
  for (const std::string& item : row->second) {
    if (item == to || "trireme/" + item == include) return true;  // a folder, or one header
    if (item.find('*') != std::string::npos && ::fnmatch(item.c_str(), include.c_str(), 0) == 0)
      return true;
  }
  return false;
}

std::vector<std::string> our_includes(const std::string& file) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*["<](trireme/[^">]+)[">].*)re");
  std::vector<std::string> found;
  for (const std::string& line : lines_of(kRoot / file)) {
    std::smatch match;
    if (std::regex_match(line, match, pattern)) found.push_back(match[1]);
  }
  return found;
}

TEST(house_layout, the_page_has_the_house_that_these_tests_read) {
  const House house = read_house();
  EXPECT_EQ(house.folders.front(), "front");
  EXPECT_EQ(house.folders.back(), "base");
  EXPECT_EQ(house.folders.size(), 24u);
  EXPECT_EQ(house.torch_free, (std::set<std::string>{"base",
                                                     "channel",
                                                     "checkpoint/steps",
                                                     "comm/flight",
                                                     "comm/local",
                                                     "comm/plan",
                                                     "config",
                                                     "data/text",
                                                     "front",
                                                     "interop",
                                                     "launch",
                                                     "net",
                                                     "pipeline/schedule",
                                                     "planner",
                                                     "rendezvous",
                                                     "rpc",
                                                     "rpc/autograd/plan",
                                                     "rpc/meet",
                                                     "rpc/wire",
                                                     "store"}));
  EXPECT_EQ(house.may.at("comm/local"),
            (std::vector<std::string>{"comm/flight", "comm/ops.h", "base"}));
  EXPECT_EQ(house.may.at("comm/flight"), (std::vector<std::string>{"comm/ops.h", "base"}));
  EXPECT_EQ(house.may.at("comm/plan"), std::vector<std::string>{"base"});
  EXPECT_EQ(house.may.at("pipeline/schedule"), std::vector<std::string>{"base"});
  EXPECT_EQ(house.may.at("launch"),
            (std::vector<std::string>{"checkpoint/steps", "comm/local", "config", "rendezvous",
                                      "store", "net", "base"}));
  EXPECT_EQ(house.may.at("planner").front(), "trireme/shard/*_plan*");
  EXPECT_TRUE(allowed(house, "trireme/train/step.cc", "trireme/grad/reducer.h"));
  EXPECT_FALSE(allowed(house, "trireme/train/step.cc", "trireme/front/train_front.h"));
  EXPECT_TRUE(allowed(house, "trireme/train/rank/train_main.cc", "trireme/front/train_front.h"));
  EXPECT_TRUE(allowed(house, "trireme/train/rank/train_rank.cc", "trireme/train/trainer.h"));
  EXPECT_TRUE(allowed(house, "trireme/train/rank/train_rank.cc", "trireme/comm/start/run.h"));
  EXPECT_TRUE(allowed(house, "trireme/train/run.cc", "trireme/comm/local/arena.h"));
  EXPECT_FALSE(allowed(house, "trireme/grad/reducer.cc", "trireme/train/step.h"));
  EXPECT_FALSE(allowed(house, "trireme/comm/local/arena.cc", "trireme/comm/group.h"));
  EXPECT_TRUE(allowed(house, "trireme/comm/group.cc", "trireme/comm/local/arena.h"));
  EXPECT_FALSE(allowed(house, "trireme/data/sources/corpus.cc", "trireme/comm/group.h"));
  EXPECT_FALSE(allowed(house, "trireme/grad/reducer.cc", "trireme/comm/local/arena.h"));
}

TEST(house_layout, a_folder_includes_only_what_its_row_of_the_table_names) {
  const House house = read_house();
  size_t seen = 0;
  for (const std::string& file : files_under("trireme", is_source)) {
    if (file == "trireme/trireme.h") continue;  // the umbrella
    for (const std::string& include : our_includes(file)) {
      ++seen;
      EXPECT_TRUE(allowed(house, file, include))
          << file << " includes " << include << ": " << folder_of(house, file)
          << " may not include " << folder_of(house, include)
          << " (table in docs/design.md). Move the code, or change the table and say why";
    }
  }
  EXPECT_GT(seen, 50u);
}

TEST(house_layout, an_include_of_ours_is_a_file_that_is_there) {
  for (const char* top : {"trireme", "cli", "bench", "tests", "examples"})
    for (const std::string& file : files_under(top, is_source))
      for (const std::string& include : our_includes(file))
        EXPECT_TRUE(fs::exists(kRoot / include)) << file << " includes " << include;
}

TEST(house_layout, torch_free_folders_and_the_command_include_no_torch) {
  const House house = read_house();
  const std::regex torch(R"re(^\s*#\s*include\s*["<](torch|ATen|c10|caffe2)/.*)re");
  std::vector<std::string> files = files_under("trireme", is_source);
  for (const std::string& file : files_under("cli", is_source)) files.push_back(file);
  std::set<std::string> headers;  // single ones that torch-free folders may include
  for (const auto& [folder, row] : house.may)
    if (house.torch_free.count(folder))
      for (const std::string& item : row) headers.insert("trireme/" + item);
  for (const std::string& file : files) {
    const bool worker = file.rfind("cli/worker", 0) == 0;  // the half of cli/ that links LibTorch
    const bool cli = file.rfind("cli/", 0) == 0;
    if (worker || file == "trireme/trireme.h") continue;
    if (!cli && !headers.count(file) && !house.torch_free.count(folder_of(house, file))) continue;
    for (const std::string& line : lines_of(kRoot / file))
      EXPECT_FALSE(std::regex_match(line, torch)) << file << ": " << line;
    if (!cli) continue;
    for (const std::string& include : our_includes(file))
      EXPECT_TRUE(house.torch_free.count(folder_of(house, include)))
          << file << " includes " << include;
  }
}

TEST(house_layout, every_folder_is_in_the_drawing) {
  const House house = read_house();
  std::set<std::string> known(house.folders.begin(), house.folders.end());
  for (const auto& entry : fs::directory_iterator(kRoot / "trireme"))
    if (entry.is_directory()) {
      EXPECT_TRUE(known.count(entry.path().filename())) << entry.path();
    }
  known.insert(
      {"support", "device", "parity", "faults", "formats", "fuzz", "gpu", "house", "soak", "cli"});
  for (const auto& entry : fs::directory_iterator(kRoot / "tests"))
    if (entry.is_directory()) {
      EXPECT_TRUE(known.count(entry.path().filename())) << entry.path();
    }
}

// What is planned is in docs/roadmap.md, not in the drawing.
TEST(house_layout, the_drawing_and_the_table_name_only_what_is_there) {
  const House house = read_house();
  for (const std::string& folder : house.folders)
    EXPECT_TRUE(fs::is_directory(kRoot / "trireme" / folder)) << folder;
  const std::vector<std::string> sources = files_under("trireme", is_source);
  for (const auto& [folder, row] : house.may) {
    EXPECT_TRUE(folder == "cli" || fs::is_directory(kRoot / "trireme" / folder)) << folder;
    for (const std::string& item : row) {
      const bool pattern = item.find('*') != std::string::npos;
      const bool there = pattern
                             ? std::any_of(sources.begin(), sources.end(),
                                           [&](const std::string& file) {
                                             return ::fnmatch(item.c_str(), file.c_str(), 0) == 0;
                                           })
                             : fs::exists(kRoot / "trireme" / item);
      EXPECT_TRUE(there) << folder << " may include " << item << ", which is not there";
    }
  }
}

TEST(house_layout, every_source_names_its_licence_first) {
  const auto wanted = [](const fs::path& path) {
    static const std::set<std::string> kinds{".h", ".cc", ".py", ".cmake", ".in", ""};
    const bool example = path.string().find("fuzz/corpus/") != std::string::npos ||
                         path.string().find("/fixtures/") != std::string::npos;  // input bytes
    return !example && (kinds.count(path.extension()) || path.filename() == "CMakeLists.txt");
  };
  size_t seen = 0;
  for (const char* top :
       {"trireme", "cli", "bench", "tests", "examples", "cmake", "scripts", ".ci"}) {
    for (const std::string& file : files_under(top, wanted)) {
      const std::vector<std::string> lines = lines_of(kRoot / file);
      const size_t first = !lines.empty() && lines[0].rfind("#!", 0) == 0 ? 1 : 0;
      ASSERT_GT(lines.size(), first) << file << " is empty";
      EXPECT_TRUE(lines[first] == "// SPDX-License-Identifier: Apache-2.0" ||
                  lines[first] == "# SPDX-License-Identifier: Apache-2.0")
          << file << ": " << lines[first];
      ++seen;
    }
  }
  EXPECT_GT(seen, 50u);
}

TEST(house_layout, every_header_guards_itself_in_one_way) {
  for (const char* top : {"trireme", "cli", "bench", "tests"})
    for (const std::string& file :
         files_under(top, [](const fs::path& p) { return p.extension() == ".h"; })) {
      const std::vector<std::string> lines = lines_of(kRoot / file);
      EXPECT_TRUE(std::find(lines.begin(), lines.end(), "#pragma once") != lines.end()) << file;
    }
}

TEST(house_layout, a_suite_of_tests_is_named_after_its_folder) {
  const std::regex test(R"(^TEST\(([A-Za-z0-9_]+),.*)");
  for (const std::string& file : files_under("tests", is_source)) {
    std::string folder = fs::path(file).parent_path().lexically_relative("tests").generic_string();
    std::replace(folder.begin(), folder.end(), '/', '_');
    for (const std::string& line : lines_of(kRoot / file)) {
      std::smatch match;
      if (std::regex_match(line, match, test)) {
        EXPECT_EQ(match[1].str().rfind(folder + "_", 0), 0u) << file << ": " << line;
      }
    }
  }
}

TEST(house_layout, public_headers_show_nothing_but_torch_std_and_fmt) {
  std::vector<std::string> todo{"trireme/trireme.h"};
  if (!fs::exists(kRoot / todo[0])) GTEST_SKIP() << "no umbrella header";
  std::set<std::string> seen(todo.begin(), todo.end());
  const std::regex foreign(R"re(^\s*#\s*include\s*["<]([^">]+/[^">]+)[">].*)re");
  while (!todo.empty()) {
    const std::string file = todo.back();
    todo.pop_back();
    for (const std::string& line : lines_of(kRoot / file)) {
      std::smatch match;
      if (!std::regex_match(line, match, foreign)) continue;
      const std::string include = match[1];
      const std::string top = include.substr(0, include.find('/'));
      EXPECT_TRUE(
          (std::set<std::string>{"trireme", "torch", "ATen", "c10", "fmt", "sys"}.count(top)))
          << file << ": " << line;
      if (top == "trireme" && fs::exists(kRoot / include) && seen.insert(include).second)
        todo.push_back(include);
    }
  }
  EXPECT_GT(seen.size(), 5u);
}

}  // namespace
}  // namespace trireme::layout_test
