// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/comm/job.h"
#include "tests/support/paths.h"

// Under mpirun the launcher reports: a job that lost a rank in the middle of a call, or whose rank
// is stopped, ends within 5 s (of the timeout) and says which rank it was.
namespace trireme::testing::comm_mpi_test {
namespace {

/// This test again, as a rank.
void call_until_it_fails() {
  const bool kills = std::string(std::getenv("TRIREME_TEST_BODY")) == "kill";
  Group g = init_process_group({.backend = "mpi", .timeout = std::chrono::seconds(kills ? 60 : 2)});
  at::Tensor t = at::ones({2 << 20});
  g.all_reduce(t).wait();
  Work work = g.all_reduce(t);
  if (g.rank() == 1) ::raise(kills ? SIGKILL : SIGSTOP);
  try {
    for (;; work = g.all_reduce(t)) work.wait();
  } catch (const Error& e) {
    std::fprintf(stderr, "%s: %s\n", e.kind(), e.what());
    ::_exit(1);
  }
}

void expect_the_job_ends(const std::string& mpi, const std::string& body, double limit,
                         const std::vector<std::string>& said) {
  const std::string mpirun = "/usr/bin/mpirun." + mpi;
  if (!std::filesystem::exists(trireme::testing::build_path("/libtrireme_mpi_") + mpi + ".so"))
    GTEST_SKIP() << "this build has no module for " << mpi;
  if (!std::filesystem::exists(mpirun)) GTEST_SKIP() << mpirun << " is not installed";
  Arguments words{mpirun, "-n", "2"};
  if (mpi == "openmpi") {
    words.push_back("--oversubscribe");
    if (::geteuid() == 0) words.push_back("--allow-run-as-root");
  }
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  words.push_back(std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name());
  Command job(words, {{{"TRIREME_TEST_BODY", body},
                       {"MASTER_PORT", std::to_string(free_tcp_port())},
                       {"OMP_NUM_THREADS", "1"}},
                      {}});
  const auto start = Clock::now();
  EXPECT_GT(job.finish(), 0) << job.out << job.err;
  EXPECT_LT(seconds_since(start), limit + 5 * kCommSlack) << job.out << job.err;
  for (const auto& words_said : said)
    EXPECT_NE((job.out + job.err).find(words_said), std::string::npos)
        << words_said << " in " << job.out << job.err;
  EXPECT_TRUE(job.left_nothing());
}

const bool kIsRank = std::getenv("TRIREME_TEST_BODY") != nullptr;

TEST(faults_comm_mpi, a_killed_rank_ends_the_job_under_open_mpi) {
  if (kIsRank) return call_until_it_fails();
  expect_the_job_ends("openmpi", "kill", 0, {"process rank 1 with PID", "exited on signal 9"});
}

// It names the process that it saw end first: the killed one, or a survivor in which UCX found that
// the memory it was reading is gone, and aborted.
TEST(faults_comm_mpi, a_killed_rank_ends_the_job_under_mpich) {
  if (kIsRank) return call_until_it_fails();
  expect_the_job_ends("mpich", "kill", 0, {"BAD TERMINATION", "PID", "(signal "});
}

TEST(faults_comm_mpi, a_stopped_rank_is_a_timeout_that_names_it_under_open_mpi) {
  if (kIsRank) return call_until_it_fails();
  expect_the_job_ends("openmpi", "stop", 2, {"Timeout: ", "rank 1"});
}

}  // namespace
}  // namespace trireme::testing::comm_mpi_test
