// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/bench_ops.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::testing::bench_test {
namespace {

using nlohmann::json;

class cli_bench : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  }

  /// The lines of a short bench; every row has the right results.
  std::vector<json> rows(Arguments words, int expected_code = 0) {
    Arguments all = trireme({"bench"});
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"--rounds", "2", "-n", "3", "-w", "1", "--json", folder_ / "b.jsonl"});
    Command bench(all);
    EXPECT_EQ(bench.finish(), expected_code) << bench.err;
    text_ = bench.out;
    std::vector<json> found;
    events_.clear();
    std::ifstream in(folder_ / "b.jsonl");
    for (std::string line; std::getline(in, line);) {
      auto row = json::parse(line);
      if (row.contains("event")) {
        events_.push_back(row);
        continue;
      }
      EXPECT_TRUE(row.at("wrong").is_null() || row.at("wrong") == 0) << row;
      EXPECT_GT(row.at("time_us"), 0) << row;
      EXPECT_GE(row.at("p90_us"), 0) << row;
      found.push_back(std::move(row));
    }
    return found;
  }

  static std::set<std::string> ops_of(const std::vector<json>& rows, const std::string& backend) {
    std::set<std::string> ops;
    for (const auto& row : rows)
      if (row.at("backend") == backend) ops.insert(row.at("op").get<std::string>());
    return ops;
  }
  static std::set<std::string> all_ops() {
    return {bench::kOpNames.begin(), bench::kOpNames.end()};
  }

  PrivateFolder folder_;
  std::string text_;
  std::vector<json> events_;
};

TEST_F(cli_bench, threads_do_every_operation_of_every_type_and_reduction) {
  const auto found = rows({"all", "--ranks", "threads", "--nproc-per-node", "3", "-b", "100", "-e",
                           "100", "-d", "float,bfloat16,int32", "-o", "all", "-r", "all"});
  EXPECT_EQ(ops_of(found, "local"), all_ops());
  std::map<std::string, int> counts;
  for (const auto& row : found) {
    EXPECT_EQ(row.at("ranks_as"), "threads");
    ++counts[row.at("op")];
  }
  // Integers have no mean.
  EXPECT_EQ(counts["all_reduce"], 5 + 5 + 4);
  EXPECT_EQ(counts["broadcast"], 3 * 3);
  EXPECT_EQ(counts["barrier"], 1);
}

TEST_F(cli_bench, processes_alternate_with_torchs_gloo) {
  const auto found =
      rows({"all", "--nproc-per-node", "2", "--backend", "local,gloo", "-b", "64", "-e", "64"});
  EXPECT_EQ(ops_of(found, "local"), all_ops());
  if (ops_of(found, "gloo").empty()) GTEST_SKIP() << "this build has no Gloo";
  auto but_one = all_ops();
  but_one.erase("reduce_scatter");
  EXPECT_EQ(ops_of(found, "gloo"), but_one);
  EXPECT_NE(text_.find("# gloo: no reduce_scatter: left out"), std::string::npos) << text_;
  int ratios = 0;
  for (const auto& event : events_) ratios += event.at("event") == "ratio";
  EXPECT_EQ(ratios, static_cast<int>(but_one.size()));
}

TEST_F(cli_bench, mpi_runs_with_more_ranks_than_cores) {
  if (!std::filesystem::exists(
          trireme::testing::build_path("/libexec/trireme/trireme-mpi-peer.so")))
    GTEST_SKIP() << "this build has no MPI";
  const auto found = rows({"all", "--nproc-per-node", "4", "--backend", "local,mpi", "-b", "1K",
                           "-e", "1K", "--memory", "plain"});
  EXPECT_EQ(ops_of(found, "local"), all_ops());
  EXPECT_EQ(ops_of(found, "mpi"), all_ops());
}

TEST_F(cli_bench, the_table_has_nccl_tests_columns_and_footer) {
  const auto found = rows({"all_gather", "--nproc-per-node", "2", "-b", "1K", "-e", "3K", "-i",
                           "1K", "--ranks", "threads"});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].at("bytes"), 2048);
  EXPECT_EQ(found[1].at("count"), 256);
  EXPECT_NEAR(found[1].at("busbw").get<double>(), found[1].at("algbw").get<double>() / 2, 1e-9);
  for (const char* part :
       {"# Collective test starting: all_gather", "out-of-place", "#wrong",
        "        2048           256     float    none      -1", "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : ", "# Collective test concluded: all_gather", "foreign load"})
    EXPECT_NE(text_.find(part), std::string::npos) << part << " in\n" << text_;
}

TEST_F(cli_bench, tuning_keeps_the_fastest_algorithm_of_every_size) {
  const std::string table = folder_ / "table.json";
  const auto found = rows({"--tune", "--ranks", "threads", "--nproc-per-node", "4", "-b", "64",
                           "-e", "64K", "-f", "1024", "--table", table, "--force"});
  std::map<std::pair<int64_t, std::string>, double> seconds;
  for (const auto& row : found)
    seconds[{row.at("bytes"), row.at("backend")}] = row.at("time_us").get<double>() / 1e6;
  EXPECT_EQ(seconds.size(), 2u * 6);
  const auto written = json::parse(read_file(table));
  EXPECT_EQ(written.at("magic"), "trireme.tuning");
  EXPECT_EQ(written.at("shape").at("ranks"), 4);
  EXPECT_EQ(written.at("measured").size(), seconds.size());
  for (const auto& m : written.at("measured"))
    EXPECT_DOUBLE_EQ((seconds[{m.at("bytes"), m.at("algorithm")}]), m.at("seconds"));
  int tuned = 0;
  for (const auto& event : events_) {
    if (event.at("event") != "tuned") continue;
    ++tuned;
    const double best = seconds[{event.at("bytes"), event.at("algorithm")}];
    for (const auto& [key, value] : seconds) {
      const bool other_bits = key.second == "ring" || key.second == "double_tree";
      EXPECT_FALSE(other_bits && event.at("algorithm") == key.second);
      if (key.first == event.at("bytes") && !other_bits) {
        EXPECT_LE(best, value) << key.second;
      }
    }
  }
  EXPECT_EQ(tuned, 2);
}

TEST_F(cli_bench, mpi_is_told_to_yield_where_ranks_outnumber_CPUs) {
  for (const char* ranks : {"1", "512"}) {
    Command bench(trireme(
        {"bench", "all_reduce", "--backend", "local,mpi", "--nproc-per-node", ranks, "--dry-run"}));
    EXPECT_EQ(bench.finish(), 0) << bench.err;
    EXPECT_NE(bench.out.find(std::string("mpirun -np ") + ranks), std::string::npos) << bench.out;
    const bool yields = bench.out.find("mpi_yield_when_idle 1") != std::string::npos;
    EXPECT_EQ(yields, std::string(ranks) == "512") << bench.out;
  }
}

TEST_F(cli_bench, refuses_what_would_not_be_what_was_asked_for) {
  for (const auto& [words, said] : std::vector<std::pair<Arguments, std::string>>{
           {{}, "name an operation"},
           {{"allreduce"}, "'allreduce' is none of"},
           {{"all_reduce", "-g", "1"}, "-g of nccl-tests is not taken"},
           {{"all_reduce", "-t", "2"}, "--ranks threads"},
           {{"all_reduce", "-b", "4X"}, "-b 4X is not a size"},
           {{"all_reduce", "-b", "8", "-e", "4"}, "-b 8 is more than -e 4"},
           {{"all_reduce", "-f", "2", "-i", "4"}, "xcludes"},
           {{"broadcast", "-r", "2", "--nproc-per-node", "2"}, "the root is a rank, 0 to 1"},
           {{"all_reduce", "-d", "float16"}, "'float16' is none of"},
           {{"all_reduce", "--ranks", "threads", "--backend", "mpi"}, "ranks that are processes"},
           {{"all_reduce", "--backend", "local,hybrid"}, "time one of them"},
           {{"--tune", "broadcast"}, "only all_reduce has several algorithms"},
           {{"--tune", "--backend", "local,gloo"}, "--backend is one of"},
           {{"--tune", "--backend", "hybrid"}, "--backend is one of"},
           {{"all_reduce", "--force"}, "--tune"},
           {{"pingpong", "--nproc-per-node", "1"}, "takes two ranks"}}) {
    Arguments all = trireme({"bench"});
    all.insert(all.end(), words.begin(), words.end());
    Command bench(all);
    EXPECT_EQ(bench.finish(), 2) << said;
    EXPECT_NE(bench.err.find(said), std::string::npos) << bench.err;
  }
}

TEST_F(cli_bench, nothing_that_a_backend_can_do_is_an_error) {
  Command bench(trireme({"bench", "reduce_scatter", "--ranks", "threads", "--nproc-per-node", "2",
                         "--backend", "gloo", "-e", "4"}));
  EXPECT_EQ(bench.finish(), 2);
  if (bench.err.find("has no Gloo") != std::string::npos) GTEST_SKIP() << bench.err;
  EXPECT_NE(bench.err.find("gloo: no reduce_scatter"), std::string::npos) << bench.err;
}

}  // namespace
}  // namespace trireme::testing::bench_test
