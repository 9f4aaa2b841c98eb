// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command.h"

// Small configurations, and what a run leaves behind.
namespace trireme::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Promises are in seconds of an idle machine.
constexpr double kSlack = 3;

/// Steps of a millisecond, checkpoints of some kilobytes.
inline const char kTinyMlp[] = R"({
  "model": {"type": "mlp", "inputs": 16, "hidden": [8], "outputs": 4},
  "data": {"type": "dummy"},
  "train_micro_batch_size_per_gpu": 4,
  "optimizer": {"type": "SGD", "params": {"lr": 0.01, "momentum": 0.9}},
  "training": {"steps": 6}
})";

/// Four leaves of four samples, on any number of ranks.
inline const char kReproducibleMlp[] = R"({
  "model": {"type": "mlp", "inputs": 16, "hidden": [8], "outputs": 4},
  "data": {"type": "dummy"},
  "train_batch_size": 16,
  "train_micro_batch_size_per_gpu": 4,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
  "training": {"reproducible": true}
})";

inline const char kTinyGpt[] = R"({
  "model": {"type": "gpt", "layers": 1, "width": 16, "heads": 2, "context": 8},
  "data": {"type": "corpus", "paths": ["corpus.txt"], "validation_fraction": 0.2},
  "train_micro_batch_size_per_gpu": 2,
  "training": {"steps": 4, "eval_batches": 2}
})";

/// The tiny MLP with some keys changed.
inline std::string tiny_mlp_with(const char* patch) {
  auto config = nlohmann::json::parse(kTinyMlp);
  config.merge_patch(nlohmann::json::parse(patch));
  return config.dump();
}

inline std::string write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

/// Ends only by a signal, or after minutes: steps of 5 ms, a checkpoint every 10.
inline Arguments endless_job(const std::string& config, const std::string& run_dir,
                             const Arguments& more = {}) {
  Arguments words =
      trireme({"train", config, "--nproc-per-node", "2", "--run-dir", run_dir, "--steps", "100000",
               "--set", "checkpoint.every=10", "--set", "steps_per_print=1"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
inline const Environment kSlowSteps{{"TRIREME_FAILPOINTS", "train.step=sleep(5)"}};

inline std::vector<nlohmann::json> json_lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

/// The step of each step line, in order.
inline std::vector<int64_t> steps_in(const std::string& metrics) {
  std::vector<int64_t> steps;
  for (const auto& line : json_lines(metrics))
    if (!line.contains("event")) steps.push_back(line.at("step"));
  return steps;
}

/// "step-…" names in a run folder, sorted; anything hidden is not counted.
inline std::vector<std::string> step_folders(const std::string& run_dir) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir))
    if (const auto name = entry.path().filename().string(); name.rfind("step-", 0) == 0)
      found.push_back(name);
  std::sort(found.begin(), found.end());
  return found;
}

inline int64_t latest_step(const std::string& run_dir) {
  std::ifstream in(run_dir + "/latest");
  std::string name;
  in >> name;
  return name.rfind("step-", 0) == 0 ? std::stoll(name.substr(5)) : -1;
}

/// Lines that begin with "trireme: error:".
inline int error_lines(const std::string& text) {
  int n = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) n += line.rfind("trireme: error: ", 0) == 0;
  return n;
}

inline ::testing::AssertionResult holds_all(const std::string& text,
                                            const std::vector<std::string>& words) {
  for (const auto& word : words)
    if (text.find(word) == std::string::npos)
      return ::testing::AssertionFailure() << "no '" << word << "' in:\n" << text;
  return ::testing::AssertionSuccess();
}

/// What a user sees of a refusal: the exit code, one sentence with all `words`, nobody left.
inline void expect_refusal(Command& command, int code, const std::vector<std::string>& words,
                           Duration patience = std::chrono::seconds(30)) {
  EXPECT_EQ(command.finish(patience), code) << command.out << command.err;
  EXPECT_EQ(error_lines(command.err), 1) << command.err;
  const auto at = command.err.find("trireme: error: ");
  const auto line = command.err.substr(std::min(at, command.err.size()));
  EXPECT_TRUE(holds_all(line.substr(0, line.find('\n')), words)) << command.err;
  EXPECT_TRUE(command.left_nothing());
}

/// `run_dir` trains on, from its last checkpoint, for a few steps more.
inline void expect_resumable(const std::string& run_dir, const Arguments& more = {}) {
  const int64_t before = latest_step(run_dir);
  ASSERT_GT(before, 0);
  Arguments words{
      "train", "--resume", run_dir, "--nproc-per-node", "2", "--steps", std::to_string(before + 3)};
  words.insert(words.end(), more.begin(), more.end());
  Command again(trireme(words));
  EXPECT_EQ(again.finish(), 0) << again.err;
  EXPECT_NE(again.err.find("going on after step " + std::to_string(before)), std::string::npos)
      << again.err;
  EXPECT_EQ(latest_step(run_dir), before + 3);
  EXPECT_TRUE(again.left_nothing());
}

}  // namespace trireme::testing
