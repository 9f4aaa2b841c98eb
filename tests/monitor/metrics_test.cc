// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/file_log.h"
#include "tests/support/file_size_limit.h"
#include "trireme/base/check.h"
#include "trireme/base/file.h"

namespace trireme::metrics_test {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(read_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "no UsageError";
}

const RunStart kStart{2, 42, "abc"};
constexpr const char* kStartLine =
    R"({"event":"start","schema":1,"world":2,"seed":42,"config_hash":"abc"})";

TEST(monitor_metrics, what_is_set_aside_has_a_step_and_no_writer) {
  PrivateFolder folder;
  const std::string path = folder / "metrics.jsonl";
  EXPECT_EQ(set_metrics_aside(path), "") << "there is none";
  for (const char* name : {"metrics-old-1.jsonl", "metrics-old-2.jsonl"}) {
    {
      MetricsFile file(path, kStart);
      StepMetrics first;
      first.step = 1;
      file.step(first);
      EXPECT_EQ(set_metrics_aside(path), "") << "it is being written";
    }
    EXPECT_EQ(set_metrics_aside(path), folder / name);
    EXPECT_EQ(lines_of(folder / name).size(), 2u);
  }
  { MetricsFile begun(path, kStart); }
  EXPECT_EQ(set_metrics_aside(path), "") << "it has no step";
  write_file_atomic(path, "time,loss\n");
  EXPECT_EQ(set_metrics_aside(path), "") << "it is not ours";
}

TEST(monitor_metrics, a_line_beyond_the_limit_on_file_sizes_is_an_error_and_not_the_end) {
  PrivateFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const std::string end = testing::end_of_child("", [&] {
    const testing::FileSizeLimit limit(2000);
    MetricsFile file(path, kStart);
    for (int i = 1; i <= 100; ++i) {
      StepMetrics m;
      m.step = i;
      file.step(m);
    }
  });
  EXPECT_EQ(end, "ResourceError: " + path +
                     ": cannot write the metrics: the file would become larger than this process "
                     "may write (ulimit -f)");
  EXPECT_EQ(read_file(path).back(), '\n');
}

TEST(monitor_metrics, a_run_is_start_steps_and_done) {
  PrivateFolder folder;
  const std::string path = folder / "metrics.jsonl";
  {
    MetricsFile file(path, kStart);
    StepMetrics m;
    m.step = 1;
    m.loss = 0.5;
    m.grad_norm = 2;
    m.lr = 1e-3;
    m.step_ms = 31.25;
    m.samples_per_s = 512;
    m.tokens_per_s = 131072;
    m.more = {{"comm_ms", 1.5}};
    file.step(m);
    file.event("validation", 1, {{"loss", 2.5}});
    file.done(1, {{"seconds", 3}});
  }
  EXPECT_EQ(
      lines_of(path),
      (std::vector<std::string>{
          kStartLine,
          R"({"step":1,"loss":0.5,"grad_norm":2.0,"lr":0.001,"step_ms":31.25,"samples_per_s":512.0,)"
          R"("tokens_per_s":131072.0,"comm_ms":1.5})",
          R"({"event":"validation","step":1,"loss":2.5})",
          R"({"event":"done","steps":1,"seconds":3.0})"}));
}

TEST(monitor_metrics, numbers_that_are_not_finite_are_null) {
  PrivateFolder folder;
  const std::string path = folder / "m";
  MetricsFile file(path, kStart);
  StepMetrics m;
  m.loss = std::nan("");
  m.grad_norm = std::numeric_limits<double>::infinity();
  file.step(m);
  const Json line = Json::parse(lines_of(path).at(1));
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["grad_norm"].is_null());
  EXPECT_EQ(line["lr"], 0);
}

TEST(monitor_metrics, a_fresh_run_replaces_and_a_resumed_one_appends) {
  PrivateFolder folder;
  const std::string path = folder / "m";
  MetricsFile(path, kStart).done(5);
  MetricsFile(path, kStart, MetricsMode::resume).done(9);
  EXPECT_EQ(lines_of(path),
            (std::vector<std::string>{kStartLine, R"({"event":"done","steps":5})", kStartLine,
                                      R"({"event":"done","steps":9})"}));
  MetricsFile(path, kStart).done(2);
  EXPECT_EQ(lines_of(path),
            (std::vector<std::string>{kStartLine, R"({"event":"done","steps":2})"}));
}

TEST(monitor_metrics, half_a_line_of_a_killed_writer_is_cut_off) {
  PrivateFolder folder;
  for (const size_t tail : {size_t{10}, size_t{5000}, size_t{4096}}) {
    const std::string path = folder / ("m" + std::to_string(tail));
    write_file_atomic(
        path, std::string(kStartLine) + "\n{\"step\":1}\n{\"step\":" + std::string(tail, '2'));
    MetricsFile(path, kStart, MetricsMode::resume).done(1);
    EXPECT_EQ(lines_of(path), (std::vector<std::string>{kStartLine, R"({"step":1})", kStartLine,
                                                        R"({"event":"done","steps":1})"}));
  }
  // Killed inside the very first line: nothing to keep.
  write_file_atomic(folder / "first", R"({"event":"sta)");
  MetricsFile(folder / "first", kStart, MetricsMode::resume);
  EXPECT_EQ(lines_of(folder / "first"), std::vector<std::string>{kStartLine});
}

TEST(monitor_metrics, a_file_that_is_not_ours_is_left_alone) {
  PrivateFolder folder;
  const std::string path = folder / "notes.txt";
  for (const char* text : {"my notes\n", "[1]\n", "{\"event\":\"done\"}\n",
                           "{\"event\":\"start\",\"schema\":\"x\"}\n"}) {
    write_file_atomic(path, text);
    for (const MetricsMode mode : {MetricsMode::fresh, MetricsMode::resume}) {
      EXPECT_NE(
          message_of([&] { MetricsFile(path, kStart, mode); }).find(path + ": this file exists"),
          std::string::npos);
      EXPECT_EQ(read_file(path), text);
    }
  }
}

TEST(monitor_metrics, a_newer_schema_is_not_resumed_and_both_are_named) {
  PrivateFolder folder;
  const std::string path = folder / "m";
  const std::string text = "{\"event\":\"start\",\"schema\":7}\n";
  write_file_atomic(path, text);
  const std::string message = message_of([&] { MetricsFile(path, kStart, MetricsMode::resume); });
  EXPECT_NE(message.find("schema 7"), std::string::npos) << message;
  EXPECT_NE(message.find("schema 1"), std::string::npos) << message;
  EXPECT_EQ(read_file(path), text);
}

TEST(monitor_metrics, a_folder_that_is_not_there_is_one_clear_error) {
  PrivateFolder folder;
  const std::string path = folder / "absent/m";
  try {
    MetricsFile file(path, kStart);
    FAIL() << "opened";
  } catch (const ResourceError& e) {
    EXPECT_NE(std::string(e.what()).find(path), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("No such file"), std::string::npos) << e.what();
  }
}

TEST(monitor_metrics, a_pipe_gets_each_line_whole) {
  PrivateFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_TRUE(reader);
  MetricsFile file(path, kStart);
  char text[4096];
  ssize_t got = ::read(reader.get(), text, sizeof text);
  EXPECT_EQ(std::string(text, std::max<ssize_t>(got, 0)), std::string(kStartLine) + "\n");
  file.done(3);
  got = ::read(reader.get(), text, sizeof text);
  EXPECT_EQ(std::string(text, std::max<ssize_t>(got, 0)), "{\"event\":\"done\",\"steps\":3}\n");
}

}  // namespace
}  // namespace trireme::metrics_test
