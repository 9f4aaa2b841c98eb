// SPDX-License-Identifier: Apache-2.0
// The configurations under examples/ are what people copy: each loads without a remark, for one
// rank and for many.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/config/config.h"

namespace trireme::examples_test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> examples() {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(trireme::testing::source_path("/examples")))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  return files;
}

TEST(house_examples, the_configurations_of_the_documents_are_there) {
  std::set<std::string> names;
  for (const std::string& file : examples()) names.insert(fs::path(file).filename());
  for (const char* name : {"gpt.json", "gpt_small.json", "mlp.json", "net.json"})
    EXPECT_TRUE(names.count(name)) << name;
}

TEST(house_examples, every_key_of_every_configuration_is_one_that_runs) {
  for (const std::string& file : examples()) {
    const Inspection inspection = Config::inspect(ConfigInputs::from({file}));
    EXPECT_FALSE(inspection.keys.empty()) << file;
    for (const KeyReport& key : inspection.keys) {
      EXPECT_EQ(key.error, "") << file << ": " << key.path;
      EXPECT_EQ(key.verdict, KeyReport::Verdict::supported)
          << file << ": " << key.path << ": " << key.why;
    }
  }
}

TEST(house_examples, the_whole_batch_follows_from_the_number_of_ranks) {
  for (const std::string& file : examples()) {
    const Config config = Config::load(ConfigInputs::from({file}));
    for (const int ranks : {1, 2, 8}) {
      const Batches batches = config.resolve_batches(ranks);
      EXPECT_EQ(batches.micro, config.get_int("train_micro_batch_size_per_gpu")) << file;
      EXPECT_EQ(batches.train, batches.micro * batches.accumulation * ranks) << file;
    }
  }
}

TEST(house_examples, the_models_of_the_documents_have_their_sizes) {
  const auto load = [](const std::string& name) {
    return Config::load(ConfigInputs::from({trireme::testing::source_path("/examples/") + name}));
  };
  const Config gpt = load("gpt.json"), mlp = load("mlp.json");
  EXPECT_EQ(gpt.get_int("model.layers"), 6);
  EXPECT_EQ(gpt.get_int("model.width"), 384);
  EXPECT_EQ(gpt.get_int("model.heads"), 6);
  EXPECT_EQ(gpt.get_int("model.context"), 256);
  EXPECT_EQ(gpt.get_int("train_micro_batch_size_per_gpu"), 4);
  EXPECT_EQ(mlp.get_int("model.inputs"), 784);
  EXPECT_EQ(mlp.get_int_list("model.hidden"), std::vector<int64_t>{256});
  EXPECT_EQ(mlp.get_int("model.outputs"), 10);
  EXPECT_EQ(load("net.json").get_string("model.type"), "net");
}

/// Lines that are neither empty nor comments.
int lines_of_code(const std::string& text) {
  std::istringstream in(text);
  int lines = 0;
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos && line.compare(first, 2, "//") != 0) ++lines;
  }
  return lines;
}

// examples/NAME/NAME.cc: what other systems' first pages have. A reader sees all of one at once.
TEST(house_examples, each_program_is_a_page_of_public_code_with_a_line_of_the_readme_and_a_test) {
  const auto text_of = [](const std::string& path) {
    return read_file(trireme::testing::source_path("/" + path));
  };
  const std::string readme = text_of("README.md"), tests = text_of("tests/cli/examples_test.cc");
  const std::regex include("#include \"trireme|#include <trireme/(?!trireme\\.h>)");
  size_t programs = 0;
  for (const auto& entry : fs::directory_iterator(trireme::testing::source_path("/examples"))) {
    const std::string name = entry.path().filename();
    if (!fs::exists(entry.path() / (name + ".cc"))) continue;
    ++programs;
    const std::string code = text_of("examples/" + name + "/" + name + ".cc");
    EXPECT_LE(lines_of_code(code), 96) << name;
    EXPECT_FALSE(std::regex_search(code, include)) << name << " includes more than trireme.h";
    EXPECT_NE(code.find("\n//   trireme run --nproc-per-node "), std::string::npos) << name;
    EXPECT_TRUE(std::regex_search(readme, std::regex("\ntrireme run [^\n#]*\\b" + name + "\\b")))
        << "README has no line that starts " << name;
    EXPECT_NE(tests.find('"' + name + '"'), std::string::npos) << "no test runs " << name;
  }
  EXPECT_GE(programs, 9u);
}

}  // namespace
}  // namespace trireme::examples_test
