// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/run.h"
#include "trireme/config/config.h"

namespace trireme {

using Words = std::vector<std::string>;

/// Each is one rank (or the only process) of its verb; the words come from the front half, which
/// checked them.
int train_task(const Words& words);
int generate_task(const Words& words);
int bench_task(const Words& words);
/// One JSON object on stdout: LibTorch, its BLAS, the backends of this build. For `trireme doctor`.
int about_task(const Words& words);
/// Steps of a run, and what the rank that held the most held, as JSON into a file: for `trireme
/// summary --measure`.
int measure_task(const Words& words);
/// {"float32": GFLOP/s, "bfloat16": …} of a matrix product on one thread, for the same.
int half_rate_task(const Words& words);

/// "--name value" pairs, as the front half writes them.
class TaskOptions {
 public:
  explicit TaskOptions(const Words& words);
  std::optional<std::string> find(const std::string& name) const;
  std::string get(const std::string& name) const;
  std::string get(const std::string& name, const std::string& otherwise) const;

 private:
  std::map<std::string, std::string> values_;
};

/// What comm.* asks of init_process_group.
InitOptions init_options(const Config& config);

/// Makes this process a good home for training: allocator thresholds, denormals, stop signals. The
/// worker owns its process; a library would not.
void tune_worker_process();
/// Memory ran out: what is free goes back to the kernel, and large blocks do so from now on. Kept
/// ones have holes between them, which a limit counts.
void give_memory_back();

/// Log lines go to stderr and, as {"time","level","text"}, to the end of this file, while the
/// object lives. The file is not made before open(): a run that is refused leaves none.
class LogFile {
 public:
  explicit LogFile(const std::string& path);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  void open();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// SIGINT and SIGTERM end the process until this is called: there is nothing to save while a run is
/// built. From then on the first asks the task to stop after its step, the second ends the process
/// at once.
void stop_after_the_step();
/// 0, or the signal that asked.
int stop_signal();

}  // namespace trireme
