// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
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

}  // namespace trireme::testing
