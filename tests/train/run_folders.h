// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/train/small_runs.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

// Folders of runs, and what checkpoints in them hold.
namespace trireme::testing {

struct Folders {
  PrivateFolder folder;
  std::string corpus = write_corpus(folder);
  std::string run(const std::string& name) const {
    const std::string path = folder / name;
    std::filesystem::create_directories(path);
    return path;
  }
};

/// 400 documents of `shortest` to `shortest` + 10 tokens in one file: letters that follow each
/// other.
inline std::string write_short_documents(const PrivateFolder& folder, int shortest = 1) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    for (int k = 0; k < shortest + i * 7 % 11; ++k) text += static_cast<char>('a' + (i + k) % 26);
    text += "\n\n";
  }
  write_file_atomic(folder / "documents.txt", text);
  return folder / "documents.txt";
}

/// Every file of a run's last checkpoint but the index, as bytes.
inline std::string all_bytes_of(const std::string& run_dir) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(find_checkpoint(run_dir)))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string bytes;
  for (const auto& file : files) bytes += read_file(file);
  return bytes;
}

/// The held-out loss of each step, as a run's metrics tell it.
inline std::map<int64_t, double> held_out_losses(const std::string& run_dir) {
  std::map<int64_t, double> losses;
  std::ifstream in(run_dir + "/metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.value("event", "") == "eval") losses[json.at("step")] = json.at("held_out_loss");
  }
  return losses;
}

}  // namespace trireme::testing
