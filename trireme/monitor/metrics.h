// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/fd.h"

// A run as JSON lines (`--metrics FILE`, and metrics.jsonl in the run folder). Rank 0 writes. Each
// line is one write(2) to a file opened for appending, so a reader that follows the file sees whole
// lines only.
//
//   {"event":"start","schema":1,"world":2,"seed":42,"config_hash":"…"}
//   {"step":1,"loss":5.54,"grad_norm":1.9,"lr":1e-05,"step_ms":31.2,"samples_per_s":512.0,"tokens_per_s":131072.0}
//   {"event":"validation","step":100,"loss":2.1}
//   {"event":"use","step":100,"cpu_busiest_rank":3,"cpu_busiest":0.98,"cpu_idlest_rank":0,…}
//   {"event":"done","steps":600,"seconds":130.1}
//
// A number that is not finite is null. Rates are over all ranks; tokens_per_s is 0 where samples
// are not text.
namespace trireme {

inline constexpr int kMetricsSchema = 1;

struct RunStart {
  int world = 1;
  uint64_t seed = 0;
  std::string config_hash;
  std::string device = {};  // "cuda:0"; "", the CPU: the line does not name it
};

struct StepMetrics {
  int64_t step = 0;  // counts from 1
  double loss = 0, grad_norm = 0, lr = 0, step_ms = 0, samples_per_s = 0, tokens_per_s = 0;
  std::vector<std::pair<std::string, double>> more;  // after those, in this order
};

enum class MetricsMode {
  fresh,   // a new run: an older metrics file is replaced
  resume,  // the run goes on: lines are appended, after another start line
};

class TRIREME_API MetricsFile {
 public:
  /// "-" is standard output; a pipe or a device is written to as it stands. An existing regular
  /// file that does not begin as one of ours is left alone: UsageError. One of a newer schema
  /// cannot be resumed: UsageError naming both. What a killed writer left of a last line is cut off
  /// before the first new one. Of two runs that write to one file the second is refused:
  /// UsageError. A pipe or a terminal that nobody reads any more gets no more lines, and that is a
  /// warning; so are lines that a full disk does not take.
  MetricsFile(const std::string& path, const RunStart& start,
              MetricsMode mode = MetricsMode::fresh);

  void step(const StepMetrics& metrics);
  /// {"event":NAME,"step":STEP, fields…}
  void event(std::string_view name, int64_t step,
             const std::vector<std::pair<std::string, double>>& fields = {});
  void done(int64_t steps, const std::vector<std::pair<std::string, double>>& fields = {});

 private:
  void write_line(const std::string& line);
  void lose_line(size_t written, int error);

  std::string path_;
  UniqueFd fd_;
  bool is_file_ = false;
  bool began_ = false;  // the first line is there
  int64_t lost_ = 0;    // lines since the disk was full
};

/// A metrics file in which a step stands is renamed to metrics-old-1.jsonl (or -2, …) beside it,
/// which is returned; "": there is none, or another run has it. For a run that begins where one
/// was. ResourceError.
TRIREME_API std::string set_metrics_aside(const std::string& path);

}  // namespace trireme
