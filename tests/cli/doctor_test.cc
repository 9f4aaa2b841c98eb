// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"
#include "tests/support/ports.h"

namespace trireme::testing::doctor_test {
namespace {

nlohmann::json report_of(Command& command) {
  EXPECT_EQ(command.finish(), 0) << command.err;
  return nlohmann::json::parse(command.out);
}

std::string findings_of(const nlohmann::json& report, const std::string& section) {
  std::string text;
  for (const auto& f : report.at("findings"))
    if (f.at("section") == section)
      text += f.at("what").get<std::string>() + " -> " + f.at("do").get<std::string>() + "\n";
  return text;
}

Arguments quick(Arguments more = {}) {
  Arguments words = trireme({"doctor", "--quick", "--json", "-"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(cli_doctor, tells_about_every_part_of_this_machine) {
  Command doctor(quick());
  const auto report = report_of(doctor);
  for (const char* section :
       {"versions", "processors", "blas", "memory", "limits", "kernel", "network"})
    EXPECT_TRUE(report.contains(section)) << section;
  EXPECT_GE(report.at("processors").at("cores"), 1);
  EXPECT_GT(report.at("memory").at("total"), 0);
  EXPECT_EQ(report.at("kernel").at("memfd"), true);
  EXPECT_FALSE(report.contains("peers"));
  if (std::filesystem::exists(worker_program())) {
    EXPECT_EQ(report.at("versions").at("backends").at(0), "local");
    EXPECT_FALSE(report.at("versions").at("libtorch").get<std::string>().empty());
  }
}

TEST(cli_doctor, says_what_to_do_about_tight_limits_and_too_many_threads) {
  Command doctor(
      {"bash", "-c", "ulimit -n 256; exec " + trireme_program() + " doctor --quick --json -"},
      {{{"OMP_NUM_THREADS", "512"}}, {}});
  const auto report = report_of(doctor);
  EXPECT_NE(findings_of(report, "limits").find("256 files"), std::string::npos);
  EXPECT_NE(findings_of(report, "processors").find("unset OMP_NUM_THREADS"), std::string::npos);
}

TEST(cli_doctor, text_has_the_findings_after_the_sections) {
  Command doctor({"bash", "-c", "ulimit -n 256; exec " + trireme_program() + " doctor --quick"});
  ASSERT_EQ(doctor.finish(), 0) << doctor.err;
  const size_t versions = doctor.out.find("versions\n"), mend = doctor.out.find("To mend\n");
  ASSERT_NE(versions, std::string::npos) << doctor.out;
  ASSERT_NE(mend, std::string::npos) << doctor.out;
  EXPECT_LT(versions, mend);
  EXPECT_NE(doctor.out.find("-> ", mend), std::string::npos);
}

TEST(cli_doctor, measures_a_core_a_copy_and_the_BLAS) {
  Command doctor(trireme({"doctor", "--json", "-"}));
  const auto report = report_of(doctor);
  EXPECT_GT(report.at("memory").at("copy_gb_per_s").at("one_core"), 0.1);
  EXPECT_GT(report.at("memory").at("copy_gb_per_s").at("all_cores"), 0.1);
  if (report.at("blas").at("library") == "") GTEST_SKIP() << "no OpenBLAS here";
  double best = 0;
  for (const auto& rate : report.at("blas").at("sgemm_1024_one_thread"))
    best = std::max(best, rate.at("gflops").get<double>());
  EXPECT_GT(best, 1);
  if (!std::filesystem::exists(worker_program())) GTEST_SKIP() << "this build has no LibTorch";
  const auto& matmul = report.at("blas").at("matmul_1024_one_thread");
  EXPECT_GT(matmul.at("float32"), 1);
  EXPECT_GT(matmul.at("bfloat16"), 0);
}

void expect_links(const nlohmann::json& peers, int ranks) {
  EXPECT_EQ(peers.at("ranks"), ranks);
  EXPECT_EQ(peers.at("hosts").size(), 1u);
  ASSERT_EQ(peers.at("tcp").size(), static_cast<size_t>(ranks - 1));
  for (const auto& link : peers.at("tcp")) {
    ASSERT_FALSE(link.contains("error")) << link;
    EXPECT_GT(link.at("alpha_us"), 0);
    EXPECT_GT(link.at("beta_gb_per_s"), 0);
    EXPECT_LT(std::abs(link.at("clock_difference_us").get<double>()), 1e5) << "one clock";
  }
  ASSERT_EQ(peers.at("local").size(), 1u);
  const auto& local = peers.at("local").at(0);
  EXPECT_EQ(local.at("error"), "");
  EXPECT_GT(local.at("barrier_us"), 0);
  EXPECT_EQ(local.at("links").size(), static_cast<size_t>(ranks - 1));
}

TEST(cli_doctor, starts_ranks_and_measures_the_links_between_them) {
  Command doctor(quick({"--nproc-per-node", "3"}));
  const auto report = report_of(doctor);
  expect_links(report.at("peers"), 3);
  EXPECT_EQ(report.at("processors").at("run").at("nproc_per_node"), 3);
}

TEST(cli_doctor, is_a_rank_of_somebody_elses_job) {
  const std::string port = std::to_string(std::min(free_tcp_port(), 65000));
  auto env = [&](const std::string& rank) {
    return CommandOptions{{{"RANK", rank},
                           {"LOCAL_RANK", rank},
                           {"WORLD_SIZE", "2"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", port}},
                          {}};
  };
  Command zero(quick(), env("0")), one(quick(), env("1"));
  expect_links(report_of(zero).at("peers"), 2);
  EXPECT_EQ(one.finish(), 0) << one.err;
  EXPECT_EQ(one.out, "");
}

TEST(cli_doctor, meets_the_hosts_of_a_list_and_names_those_that_do_not_come) {
  const std::string port = std::to_string(free_tcp_port());
  const Arguments list{"--peers", "127.0.0.1,127.0.0.1", "--port", port};
  auto rank = [&](const char* number, Arguments more = {}) {
    Arguments words = quick(list);
    words.insert(words.end(), {"--rank", number});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  {
    Command zero(rank("0")), one(rank("1"));
    expect_links(report_of(zero).at("peers"), 2);
    EXPECT_EQ(one.finish(), 0) << one.err;
  }
  Command alone(rank("0", {"--timeout", "1"}));
  EXPECT_EQ(alone.finish(), 1);
  EXPECT_NE(alone.err.find("missing: rank 1"), std::string::npos) << alone.err;
}

TEST(cli_doctor, refuses_what_it_does_not_know) {
  for (const auto& [words, said] : std::vector<std::pair<Arguments, std::string>>{
           {{"--qiuck"}, "did you mean --quick"},
           {{"--json"}, "needs a value"},
           {{"--quick=1"}, "takes no value"},
           {{"--rank", "1"}, "--rank goes with --peers"},
           {{"--timeout", "soon"}, "not a whole number"},
           {{"--peers", "somebody.else,another"}, "none of them is this host"}}) {
    Arguments all = trireme({"doctor"});
    all.insert(all.end(), words.begin(), words.end());
    Command doctor(all);
    EXPECT_EQ(doctor.finish(), 2) << words[0];
    EXPECT_NE(doctor.err.find(said), std::string::npos) << doctor.err;
  }
}

}  // namespace
}  // namespace trireme::testing::doctor_test
