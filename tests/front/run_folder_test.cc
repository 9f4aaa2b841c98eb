// SPDX-License-Identifier: Apache-2.0
#include "trireme/front/run_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme::run_folder_test {
namespace {

namespace fs = std::filesystem;

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

const char kStart[] = "{\"event\":\"start\",\"schema\":1}\n";

TEST(front_run_folder, what_may_start_in_what_was_found) {
  auto refused = [](const FolderFound& found, FolderUse use) {
    return !refusal_of(found, use, "run").empty();
  };
  FolderFound empty, run, begun, steps_alone, other, foreign;
  run.is_run = run.has_metrics = true;
  run.steps = {"step-00000010"};
  begun.is_run = true;  // config.json and a start line: it never did a step
  steps_alone.steps = {"step-00000010"};
  other.has_other = true;
  foreign.foreign = "config.json";
  struct Row {
    FolderFound found;
    bool fresh, overwrite;  // refused
  };
  for (const Row& row :
       {Row{empty, false, false}, Row{run, true, false}, Row{begun, false, false},
        Row{steps_alone, true, true}, Row{other, false, true}, Row{foreign, true, true}}) {
    EXPECT_EQ(refused(row.found, FolderUse::fresh), row.fresh);
    EXPECT_EQ(refused(row.found, FolderUse::overwrite), row.overwrite);
    EXPECT_FALSE(refused(row.found, FolderUse::resume));
    EXPECT_EQ(refused(row.found, FolderUse::resume_or_begin), !row.found.foreign.empty());
  }
}

TEST(front_run_folder, damaged_steps_are_a_runs_and_go_with_it) {
  PrivateFolder folder;
  const std::string run = folder / "run";
  fs::create_directories(run + "/damaged-step-00000009");
  write(run + "/config.json", "{\"_origins\": {}}");
  const FolderFound found = look_into(run);
  EXPECT_EQ(found.damaged, std::vector<std::string>{"damaged-step-00000009"});
  EXPECT_TRUE(found.steps.empty());
  const std::string said = refusal_of(found, FolderUse::fresh, "run");
  EXPECT_NE(said.find("damaged checkpoints"), std::string::npos) << said;
  remove_unbegun_run(run, run);
  EXPECT_TRUE(fs::exists(run + "/config.json")) << "it was begun";
  delete_run(run);
  EXPECT_TRUE(fs::is_empty(run));
}

TEST(front_run_folder, the_newest_run_with_steps_may_have_damaged_ones_alone) {
  PrivateFolder runs, elsewhere;
  EXPECT_EQ(newest_run_with_steps(runs / "none"), "");
  for (const char* name : {"20260101-000000/step-00000003", "20260102-000000/damaged-step-00000003",
                           "20260103-000000/flight"})
    fs::create_directories(runs / name);
  EXPECT_EQ(newest_run_with_steps(runs.path()), runs / "20260102-000000");
  write(runs / "20260103-000000/config.json",
        "{\"_origins\": {}, \"checkpoint\": {\"folder\": \"" + elsewhere.path() + "\"}}");
  EXPECT_EQ(newest_run_with_steps(runs.path()), runs / "20260102-000000");
  fs::create_directory(elsewhere / "step-00000003");
  EXPECT_EQ(newest_run_with_steps(runs.path()), runs / "20260103-000000");
}

TEST(front_run_folder, an_editors_config_json_is_no_runs) {
  PrivateFolder folder;
  write(folder / "config.json", "{\"theme\": \"dark\"}");
  EXPECT_EQ(look_into(folder.path()).foreign, "config.json");
  write(folder / "config.json", "{\"_origins\": {}}");
  EXPECT_EQ(look_into(folder.path()).foreign, "");
  EXPECT_TRUE(look_into(folder.path()).is_run);
}

TEST(front_run_folder, metrics_without_a_step_are_no_run_yet) {
  PrivateFolder folder;
  write(folder / "metrics.jsonl", std::string(kStart) + kStart);
  EXPECT_TRUE(look_into(folder.path()).is_run);
  EXPECT_FALSE(look_into(folder.path()).has_metrics);
  write(folder / "metrics.jsonl", std::string(kStart) + "{\"step\":1}\n");
  EXPECT_TRUE(look_into(folder.path()).has_metrics);
  write(folder / "metrics.jsonl", "time,loss\n");
  EXPECT_EQ(look_into(folder.path()).foreign, "metrics.jsonl");
}

TEST(front_run_folder, metrics_that_were_set_aside_are_a_runs_and_go_with_it) {
  PrivateFolder folder;
  const std::string run = folder / "run";
  fs::create_directory(run);
  write(run + "/config.json", "{\"_origins\": {}}");
  write(run + "/metrics-old-1.jsonl", std::string(kStart) + "{\"step\":1}\n");
  EXPECT_TRUE(look_into(run).has_metrics);
  EXPECT_FALSE(look_into(run).has_other);
  delete_run(run);
  EXPECT_TRUE(fs::is_empty(run));
}

TEST(front_run_folder, a_named_pipe_is_refused_and_nobody_waits_for_it) {
  for (const char* name : {"metrics.jsonl", "config.json"}) {
    PrivateFolder folder;
    ASSERT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
    EXPECT_EQ(look_into(folder.path()).foreign, name);
  }
}

TEST(front_run_folder, a_run_is_deleted_by_name_and_links_are_not_followed) {
  PrivateFolder folder, elsewhere;
  write(elsewhere / "trireme.index.json", "{}");
  write(elsewhere / "precious", "text");
  const std::string run = folder / "run";
  fs::create_directories(run + "/flight");
  fs::create_directories(run + "/sub/step-00000001");
  fs::create_directory_symlink(elsewhere.path(), run + "/step-00000009");
  write(run + "/config.json", "{\"_origins\": {}}");
  for (const char* name : {"log.jsonl", "latest", "notes.txt", "config.json.tmp.12"})
    write(run + "/" + name, "x");
  write(run + "/metrics.jsonl", kStart);
  delete_run(run);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(run)) left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"notes.txt", "sub"}));
  EXPECT_TRUE(fs::exists(elsewhere / "precious"));
}

TEST(front_run_folder, a_folder_that_is_refused_leaves_none_of_its_parents) {
  PrivateFolder folder;
  {
    RunFolder made(folder / "a/b/c", {});
    EXPECT_EQ(made.made(), folder / "a");
    made.remove_unbegun();
  }
  EXPECT_FALSE(fs::exists(folder / "a"));
  write(folder / "file", "");
  EXPECT_THROW(RunFolder(folder / "file/run", {}), ResourceError);
  EXPECT_THROW(RunFolder(folder / "file", {}), Error);
}

TEST(front_run_folder, a_link_to_a_folder_is_that_folder) {
  PrivateFolder folder;
  fs::create_directory(folder / "real");
  fs::create_directory_symlink("real", folder / "link");
  const RunFolder first(folder / "link", {});
  EXPECT_THROW(RunFolder(folder / "real", {}), ResourceError);
}

TEST(front_run_folder, runs_of_one_second_have_a_name_each) {
  PrivateFolder folder;
  std::vector<RunFolder> runs;
  std::set<std::string> names;
  for (int i = 0; i < 5; ++i) {
    runs.push_back(RunFolder::fresh_below(folder / "runs/gpt"));
    names.insert(runs.back().path());
  }
  EXPECT_EQ(names.size(), 5u);
}

}  // namespace
}  // namespace trireme::run_folder_test
