// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/span_sink.h"

#include <gtest/gtest.h>

#include <thread>

namespace trireme::span_sink_test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(monitor_span_sink, nested_time_is_counted_once_for_the_innermost_span) {
  SpanSink sink;
  // backward [0, 10) with communication in [2, 3) and [5, 9), of which [6, 7) is a copy; then the
  // optimizer.
  sink.span("comm", "post", 2 * kSecond, 3 * kSecond);
  sink.span("copy", "stage", 6 * kSecond, 7 * kSecond);
  sink.span("comm", "wait", 5 * kSecond, 9 * kSecond);
  sink.span("compute", "backward", 0, 10 * kSecond);
  sink.span("optim", "step", 10 * kSecond, 12 * kSecond);
  const StepTimes times = sink.take();
  EXPECT_DOUBLE_EQ(times.of("comm"), 4);
  EXPECT_DOUBLE_EQ(times.of("copy"), 1);
  EXPECT_DOUBLE_EQ(times.of("compute"), 5);
  EXPECT_DOUBLE_EQ(times.of("optim"), 2);
  EXPECT_EQ(times.of("data"), 0);
  EXPECT_EQ(times.spans.at("comm"), 2);
}

TEST(monitor_span_sink, take_begins_anew) {
  SpanSink sink;
  sink.span("data", "next", 0, kSecond);
  sink.counter("bytes", 5);
  EXPECT_DOUBLE_EQ(sink.take().of("data"), 1);
  sink.counter("bytes", 2);
  sink.counter("bytes", 3);
  const StepTimes times = sink.take();
  EXPECT_TRUE(times.seconds.empty());
  EXPECT_DOUBLE_EQ(times.counters.at("bytes"), 5);
}

TEST(monitor_span_sink, another_threads_work_is_not_this_steps) {
  SpanSink sink;
  std::thread loader([&] {
    sink.span("data", "read", 0, 5 * kSecond);
    EXPECT_DOUBLE_EQ(sink.take().of("data"), 5);
    sink.span("data", "read", 5 * kSecond, 7 * kSecond);
  });
  loader.join();
  sink.span("data", "wait", 0, kSecond);
  EXPECT_DOUBLE_EQ(sink.take().of("data"), 1);
}

TEST(monitor_span_sink, a_thread_that_never_takes_keeps_its_sums_and_bounded_memory) {
  SpanSink sink;
  constexpr int kSpans = 20000;
  for (int i = 0; i < kSpans; ++i) sink.span("data", "read", i * 10, i * 10 + 4);
  // An enclosing span of the last hundred still finds them.
  sink.span("outer", "all", (kSpans - 100) * 10, kSpans * 10);
  const StepTimes times = sink.take();
  EXPECT_NEAR(times.of("data") * 1e9, kSpans * 4, 0.5);
  EXPECT_NEAR(times.of("outer") * 1e9, 100 * 10 - 100 * 4, 0.5);
}

TEST(monitor_span_sink, spans_of_the_library_arrive) {
  SpanSink sink;
  set_trace_sink(&sink);
  {
    Span outer("compute", "forward");
    Span inner("comm", "wait");
    count("bytes", 7);
  }
  set_trace_sink(nullptr);
  const StepTimes times = sink.take();
  EXPECT_EQ(times.spans.at("compute"), 1);
  EXPECT_EQ(times.spans.at("comm"), 1);
  EXPECT_DOUBLE_EQ(times.counters.at("bytes"), 7);
}

}  // namespace
}  // namespace trireme::span_sink_test
