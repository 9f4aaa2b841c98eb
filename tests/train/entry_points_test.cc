// SPDX-License-Identifier: Apache-2.0
// Each entry point reads every key that it accepts: `trireme train` and initialize() those of this
// version, a program of one's own those of its section. What is read is not yet of effect: that is
// key_effects_test.cc's to see.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "tests/support/paths.h"
#include "tests/train/small_runs.h"
#include "trireme/base/file.h"
#include "trireme/config/engine_keys.h"
#include "trireme/config/key_reads.h"
#include "trireme/config/key_table.h"
#include "trireme/train/engine.h"
#include "trireme/train/trainer.h"

namespace entry_points_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using Paths = std::set<std::string, std::less<>>;

bool runs(const KeyInfo& key) { return key.status == KeyStatus::supported && key.alias_of.empty(); }

// What the command reads before ranks start, or in their main(): key or keys, and the file.
const std::map<std::string, const char*> kBeforeTraining = {
    {"generate.*", "cli/generate_verb.cc"},
    {"comm.across", "trireme/train/rank/group_options.cc"},
    {"elastic.batch", "trireme/train/rank/generations.cc"},
    {"comm.check", "trireme/train/rank/group_options.cc"},
};

/// Another key applies only with a value of this one, or there is one value alone to choose.
bool needs_no_reader(const KeyInfo& key) {
  const auto& keys = all_keys();
  return split_words(key.choices).size() == 1 ||
         std::any_of(keys.begin(), keys.end(), [&](const KeyInfo& other) {
           return ("|" + other.when).find("|" + key.path + "=") != std::string::npos;
         });
}

const char* before_training(const std::string& path) {
  for (const auto& [keys, file] : kBeforeTraining)
    if (keys == path || (keys.ends_with(".*") && path.starts_with(keys.substr(0, keys.size() - 1))))
      return file;
  return nullptr;
}

void train_noting(const Config& config, int ranks, const std::shared_ptr<KeyReads>& reads) {
  PrivateFolder folder;
  TrainOptions options;
  options.run_dir = folder.path();
  run_threads(
      ranks, [&](Group g) { train(config.noting(reads), g, options); }, std::chrono::seconds(120));
}

/// The members that keys fill, as the lists in config/sections/ name them: "fp16.enabled" →
/// enabled.
std::map<std::string, std::string> members_of_keys() {
  std::map<std::string, std::string> members;
  const std::regex field(
      R"re(f\.field\(\s*\{\s*\.path = "([^"]+)"[^;]*?\},\s*([A-Za-z_0-9.]+)\);)re");
  const std::string folder = trireme::testing::source_path("/trireme/config/sections");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".h") continue;
    const std::string text = read_file(entry.path());
    // A help text may hold a semicolon: texts other than paths are taken out.
    const std::string bare = std::regex_replace(
        text,
        std::regex(R"re((help|choices|when|why|refused_choices) =\s*("([^"\\]|\\.)*"\s*)+)re"),
        "$1 = 0");
    for (std::sregex_iterator it(bare.begin(), bare.end(), field), end; it != end; ++it) {
      const std::string member = (*it)[2];
      members[(*it)[1]] = member.substr(member.rfind('.') + 1);
    }
  }
  return members;
}

/// All that looks at sections: what runs with them, and what refuses values that cannot run.
std::string sources_of_readers() {
  std::string all;
  for (const char* top : {"trireme/train", "trireme/planner", "trireme/config/rules",
                          "trireme/grad/compression", "trireme/front", "cli"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(trireme::testing::source_path("/") + top))
      if (entry.path().extension() == ".cc") all += read_file(entry.path());
  return all + read_file(trireme::testing::source_path("/trireme/config/config.cc"));
}

}  // namespace

TEST(train_entry_points, train_reads_every_key_that_it_accepts) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const auto reads = std::make_shared<KeyReads>();
  const Sets two = {"training.steps=2"};
  const auto with = [&](Sets sets) {
    sets.insert(sets.end(), two.begin(), two.end());
    return sets;
  };
  const std::string dynamic = "data_efficiency.data_sampling.dynamic_batching.";
  train_noting(digits("mlp", two), 1, reads);
  train_noting(tiny_gpt(corpus, two), 2, reads);
  train_noting(digits("mlp", with({"averaging.type=local_sgd"})), 2, reads);
  train_noting(digits("mlp", with({"balance.mode=throughput"})), 2, reads);
  train_noting(tiny_gpt(corpus, with({"zero_optimization.stage=3"})), 2, reads);
  train_noting(tiny_gpt(corpus, with({"data.type=documents", "data_efficiency.enabled=true",
                                      "data_efficiency.data_sampling.enabled=true",
                                      dynamic + "enabled=true", dynamic + "max_tokens=96"})),
               1, reads);
  EXPECT_ANY_THROW(train_noting(
      digits("mlp", with({"data.type=mnist", "data.path=" + (folder / "none")})), 1, reads));
  const Paths read = reads->paths();
  for (const KeyInfo& key : all_keys())
    if (runs(key)) {
      EXPECT_TRUE(read.contains(key.path) || before_training(key.path) || needs_no_reader(key))
          << key.path << " is accepted, and nothing reads it";
    }
}

TEST(train_entry_points, initialize_reads_or_refuses_every_key) {
  const auto reads = std::make_shared<KeyReads>();
  for (const char* stage : {"0", "1", "3"})
    run_threads(
        2,
        [&](Group g) {
          const Config config =
              Config::from_text("ds.json", R"({"train_micro_batch_size_per_gpu": 2})",
                                {std::string("zero_optimization.stage=") + stage});
          initialize(torch::nn::Linear(8, 8), config.noting(reads), g);
        },
        std::chrono::seconds(60));
  const Paths read = reads->paths();
  for (const KeyInfo& key : all_keys())
    if (runs(key) && !not_of_engine(key.path)) {
      EXPECT_TRUE(read.contains(key.path) || needs_no_reader(key))
          << key.path << ": initialize() neither reads it nor says that it does not serve it";
    }
}

TEST(train_entry_points, what_the_command_reads_itself_is_read_there) {
  for (const auto& [keys, file] : kBeforeTraining) {
    const std::string text = read_file(trireme::testing::source_path("/") + std::string(file));
    EXPECT_NE(text.find("section<"), std::string::npos) << keys << ": " << file;
  }
}

// A whole section is filled at once, so that a member that nobody looks at is seen in the sources.
TEST(train_entry_points, every_member_that_a_key_fills_is_looked_at) {
  const auto members = members_of_keys();
  const std::string readers = sources_of_readers();
  size_t keys = 0;
  for (const KeyInfo& key : all_keys()) {
    if (!runs(key)) continue;
    ++keys;
    const auto it = members.find(key.path);
    ASSERT_NE(it, members.end()) << key.path;
    EXPECT_TRUE(needs_no_reader(key) ||
                std::regex_search(readers, std::regex("[.>\"]" + it->second + "\\b")))
        << key.path << " fills the member " << it->second << ", which nobody looks at";
  }
  EXPECT_EQ(members.size(), keys);
}

TEST(train_entry_points, a_program_reads_its_section_and_no_other_key_of_it_is_taken) {
  struct OreSection {
    std::string mine = "north";
    int64_t depth = 3;
    void fields(Fields& f) {
      f.field({.path = "ore.mine", .choices = "north south", .help = "which mine"}, mine);
      f.field({.path = "ore.depth", .min = 1, .when = "ore.mine=north", .help = "its levels"},
              depth);
    }
  };
  KeyTable keys = KeyTable::built_in_copy();
  keys.add<OreSection>();
  const auto table = std::make_shared<const KeyTable>(std::move(keys));
  const auto reads = std::make_shared<KeyReads>();
  const Config config =
      Config::from_text("ore.json", R"({"ore": {"depth": 7}})", {}, table).noting(reads);
  EXPECT_EQ(config.section<OreSection>().depth, 7);
  EXPECT_EQ(reads->paths(), (Paths{"ore.depth", "ore.mine"}));
  for (const char* text : {R"({"ore": {"dept": 7}})", R"({"ore": {"mine": "south", "depth": 7}})",
                           R"({"or": {"depth": 7}})"})
    EXPECT_THROW(Config::from_text("ore.json", text, {}, table), UsageError) << text;
}

}  // namespace entry_points_test
