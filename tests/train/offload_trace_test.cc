// SPDX-License-Identifier: Apache-2.0
// What a trace of ZeRO-3 with everything on disk shows: the disk works while the rank computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "tests/train/small_runs.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/trace.h"

namespace offload_trace_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

struct Interval {
  std::string category, name;
  int64_t begin, end;
  bool of_rank;  // else: of the thread that moves bytes
};

class Recorder final : public TraceSink {
 public:
  explicit Recorder(std::thread::id rank) : rank_(rank) {}
  void span(const char* category, const char* name, int64_t begin, int64_t end) override {
    std::lock_guard lock(mutex_);
    all_.push_back({category, name, begin, end, std::this_thread::get_id() == rank_});
  }
  void counter(const char*, double) override {}
  std::vector<Interval> taken() {
    std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  const std::thread::id rank_;
  std::mutex mutex_;
  std::vector<Interval> all_;
};

/// Nanoseconds of such requests inside of spans of that category and name, while the rank did
/// not stand still for the disk.
int64_t hidden(const std::vector<Interval>& all, const std::string& request,
               const std::string& category, const std::string& name) {
  int64_t sum = 0;
  for (const Interval& io : all) {
    if (io.of_rank || io.category != "offload" || io.name != request) continue;
    for (const Interval& work : all) {
      if (!work.of_rank || work.category != category || work.name != name) continue;
      const int64_t begin = std::max(io.begin, work.begin), end = std::min(io.end, work.end);
      if (begin >= end) continue;
      sum += end - begin;
      for (const Interval& wait : all)
        if (wait.of_rank && wait.category == "offload")
          sum -= std::max<int64_t>(0, std::min(end, wait.end) - std::max(begin, wait.begin));
    }
  }
  return sum;
}

TEST(train_offload_trace, the_disk_reads_and_writes_while_the_rank_computes_and_steps) {
  PrivateFolder folder;
  const std::string corpus = write_corpus(folder);
  const Config config = tiny_gpt(
      corpus,
      {"zero_optimization.stage=3", "zero_optimization.stage3_param_persistence_threshold=0",
       // A unit comes from its file while the one before computes.
       "zero_optimization.stage3_prefetch_bucket_size=0",
       "zero_optimization.offload_optimizer.device=nvme",
       "zero_optimization.offload_optimizer.nvme_path=" + folder.path(),
       "zero_optimization.offload_optimizer.pipeline_read=true",
       "zero_optimization.offload_optimizer.pipeline_write=true",
       "zero_optimization.sub_group_size=1024", "zero_optimization.offload_param.device=nvme",
       "zero_optimization.offload_param.nvme_path=" + folder.path()});
  // A disk that needs a millisecond: slower than the steps of so small parts.
  set_failpoints("offload.read=sleep(1),offload.write=sleep(1)");
  std::vector<Interval> all;
  run_threads(1, [&](Group g) {
    Recorder recorder(std::this_thread::get_id());
    set_thread_trace_sink(&recorder);
    {
      trireme::Run run = build_run(config, g);
      start_data(run, config);
      for (int step = 0; step < 8; ++step) train_step(run);
    }
    set_thread_trace_sink(nullptr);
    all = recorder.taken();
  });
  set_failpoints("");
  // How much is the machine's business (on a busy one, nothing in most steps); with nothing ahead
  // and nothing behind it would be none.
  EXPECT_GT(hidden(all, "read", "compute", "forward and backward"), 0);
  EXPECT_GT(hidden(all, "read", "optimizer", "sub-group"), 0);
  EXPECT_GT(hidden(all, "write", "optimizer", "sub-group"), 0);
}

}  // namespace

}  // namespace offload_trace_test
