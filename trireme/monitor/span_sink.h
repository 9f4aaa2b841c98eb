// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/base/trace.h"

// Where a step's time went. Spans of one thread nest; each nanosecond is counted once, for the
// innermost span around it: with "comm" spans inside a backward span, "comm" is the communication
// that computing did not hide (the thread waited or copied), and the backward span keeps what is
// left. Work on other threads (a loader that reads ahead) is theirs, not this step's.
namespace trireme {

struct StepTimes {
  std::map<std::string, double> seconds;   // by category, of the calling thread
  std::map<std::string, int64_t> spans;    // how many, by category
  std::map<std::string, double> counters;  // over all threads
  double of(const std::string& category) const {
    auto it = seconds.find(category);
    return it == seconds.end() ? 0 : it->second;
  }
};

class TRIREME_API SpanSink : public TraceSink {
 public:
  void span(const char* category, const char* name, int64_t begin_ns, int64_t end_ns) override;
  void counter(const char* name, double delta) override;

  /// What the calling thread's spans came to since its last take(), and the counters since
  /// anybody's. Call it between spans, once a step.
  StepTimes take();

 private:
  struct Interval {
    int64_t begin, end;
  };
  struct Thread {
    std::map<std::string, int64_t> ns, spans;
    std::vector<Interval> outer;  // finished spans that no finished span encloses yet
  };
  std::mutex mutex_;
  std::unordered_map<std::thread::id, Thread> threads_;
  std::map<std::string, double> counters_;
};

}  // namespace trireme
