// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// Spans and counters that comm, grad, data and train emit and monitor consumes. With no sink a span
// costs one relaxed load. Names are string literals: they must outlive the sink.
namespace trireme {

struct TraceSink {
  virtual ~TraceSink() = default;
  /// A finished span of this thread; times from now_ns().
  virtual void span(const char* category, const char* name, int64_t begin_ns, int64_t end_ns) = 0;
  virtual void counter(const char* name, double delta) = 0;
};

/// Process-wide. The sink must live until it is replaced and every thread has left the library.
/// nullptr: none.
TRIREME_API void set_trace_sink(TraceSink* sink);
/// Of the calling thread alone, in place of the process's; what a rank that is a thread uses.
/// nullptr: none.
TRIREME_API void set_thread_trace_sink(TraceSink* sink);
/// What the calling thread's spans go to.
TRIREME_API TraceSink* trace_sink();

class Span {
 public:
  Span(const char* category, const char* name)
      : sink_(trace_sink()), category_(category), name_(name), begin_(sink_ ? now_ns() : 0) {}
  ~Span() {
    if (sink_) sink_->span(category_, name_, begin_, now_ns());
  }
  Span(const Span&) = delete;

 private:
  TraceSink* sink_;
  const char* category_;
  const char* name_;
  int64_t begin_;
};

inline void count(const char* name, double delta) {
  if (auto* sink = trace_sink()) sink->counter(name, delta);
}

}  // namespace trireme
