// SPDX-License-Identifier: Apache-2.0
#include "trireme/monitor/metrics.h"

#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace metrics_test {

using namespace trireme;

// metrics-v1.jsonl is a run's metrics as version 1 of the schema was when it landed. What it says
// must mean the same for ever.
namespace {

const std::string kFixture = trireme::testing::source_path("/tests/formats/metrics-v1.jsonl");
const RunStart kStart{2, 42, "0123456789abcdef"};

void write_the_same_run(MetricsFile& file) {
  StepMetrics m;
  m.step = 1;
  m.loss = 5.5446;
  m.grad_norm = 1.9;
  m.lr = 1e-5;
  m.step_ms = 31.25;
  m.samples_per_s = 512;
  m.tokens_per_s = 131072;
  m.more = {{"compute_ms", 28.5}, {"exposed_comm_ms", 1.5}, {"optimizer_ms", 1}, {"data_ms", 0.25}};
  file.step(m);
  file.event("eval", 1, {{"held_out_loss", 5.5}, {"accuracy", 0.01}});
  file.done(1);
}

}  // namespace

TEST(formats_metrics, schema_1_is_written_byte_for_byte) {
  ASSERT_EQ(kMetricsSchema, 1) << "a new schema: keep this fixture, add one of the new";
  PrivateFolder folder;
  const std::string path = folder / "metrics.jsonl";
  {
    MetricsFile file(path, kStart);
    write_the_same_run(file);
  }
  EXPECT_EQ(read_file(path), read_file(kFixture));
}

TEST(formats_metrics, a_file_of_schema_1_is_resumed) {
  PrivateFolder folder;
  const std::string path = folder / "metrics.jsonl", before = read_file(kFixture);
  write_file_atomic(path, before);
  MetricsFile(path, kStart, MetricsMode::resume).done(2);
  EXPECT_EQ(read_file(path), before + before.substr(0, before.find('\n') + 1) +
                                 "{\"event\":\"done\",\"steps\":2}\n");
}

TEST(formats_metrics, a_newer_schema_is_refused_naming_both) {
  PrivateFolder folder;
  const std::string path = folder / "metrics.jsonl", mark = "\"schema\":1";
  std::string text = read_file(kFixture);
  text.replace(text.find(mark), mark.size(), "\"schema\":2");
  write_file_atomic(path, text);
  try {
    MetricsFile(path, kStart, MetricsMode::resume);
    FAIL() << "resumed";
  } catch (const UsageError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("schema 2"), std::string::npos) << what;
    EXPECT_NE(what.find("schema 1"), std::string::npos) << what;
  }
  EXPECT_EQ(read_file(path), text);
}

}  // namespace metrics_test
