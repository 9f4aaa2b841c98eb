// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/mpirun.h"
#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/comm/flight/dump_reader.h"
#include "trireme/comm/flight/verdict.h"

// The mpi backend under the real mpirun of each MPI that this build has a module for. What the
// ranks do stands in ranks.cc and guest.cc.
namespace trireme::testing::ranks_test {
namespace {

const Arguments kSound{"every_collective", "conformance", "pairs", "groups", "large"};
const Arguments kFaults{"mismatch", "timeout", "different_calls", "aborted"};
const Arguments kStalled{"stalled"}, kDesync{"desync"}, kByDefault{"desync_by_default"},
    kLeft{"left"}, kLeftByExit{"left_by_exit"};
/// As where a firewall stands between the hosts.
const Environment kNoTable{{"TRIREME_FAILPOINTS", "comm.mpi_own_store=error(113)"}};

/// no_table: why the ranks' own store is not reached; "": it is.
void expect_all_well(Mpi mpi, int n, const std::string& program, const Arguments& facts,
                     const Environment& env = {}, const std::string& no_table = "") {
  if (const auto why = why_not(mpi); !why.empty()) GTEST_SKIP() << why;
  Command job(mpi_ranks(mpi, n, program, facts), {own_job(env), {}});
  const int status = job.finish(std::chrono::seconds(60));
  // After faults MPI_Finalize may have no end: a rank whose patience is over leaves without it, and
  // MPICH's launcher then kills those that still wait in theirs.
  const bool faults = facts == kFaults || facts == kStalled || facts == kDesync ||
                      facts == kByDefault || facts == kLeft || facts == kLeftByExit;
  if (mpi != Mpi::mpich || !faults || status != 9) {
    EXPECT_EQ(status, 0) << job.out << job.err;
  }
  EXPECT_EQ(count(job.out + job.err, "all is well"), n) << job.out << job.err;
  const std::string unreached =
      "rank 1 does not reach the store in which the ranks of a group report";
  EXPECT_EQ(count(job.out + job.err, unreached) > 0, !no_table.empty()) << job.out << job.err;
  EXPECT_NE((job.out + job.err).find(no_table), std::string::npos) << job.out << job.err;
}

void expect_the_launcher_ends_it(Mpi mpi, const std::string& fact) {
  if (const auto why = why_not(mpi); !why.empty()) GTEST_SKIP() << why;
  const auto start = Clock::now();
  Command job(mpi_ranks(mpi, 2, "mpi_ranks", {fact}), {own_job(), {}});
  EXPECT_GT(job.finish(std::chrono::seconds(30)), 0) << job.out << job.err;
  EXPECT_LT(seconds_since(start), 10);
  EXPECT_EQ(count(job.out + job.err, "all is well"), 0);
  EXPECT_TRUE(eventually([&] { return job.living().empty(); }));
}

void expect_refused(const std::string& program, const Environment& env, const std::string& part) {
  Command job({trireme::testing::build_path("/tests/") + program}, {own_job(env), {}});
  EXPECT_EQ(job.finish(), 1) << job.err;
  EXPECT_NE(job.err.find(part), std::string::npos) << job.err;
}

TEST(comm_mpi_ranks, two_under_open_mpi_agree_with_the_serial_oracle) {
  expect_all_well(Mpi::open, 2, "mpi_ranks", kSound);
}
TEST(comm_mpi_ranks, four_under_open_mpi_agree_with_the_serial_oracle) {
  expect_all_well(Mpi::open, 4, "mpi_ranks", kSound);
}
TEST(comm_mpi_ranks, two_under_mpich_agree_with_the_serial_oracle) {
  expect_all_well(Mpi::mpich, 2, "mpi_ranks", kSound);
}
TEST(comm_mpi_ranks, four_under_mpich_agree_with_the_serial_oracle) {
  expect_all_well(Mpi::mpich, 4, "mpi_ranks", kSound);
}

TEST(comm_mpi_ranks, faults_under_open_mpi_are_errors_that_name_ranks) {
  expect_all_well(Mpi::open, 3, "mpi_ranks", kFaults);
}
TEST(comm_mpi_ranks, faults_under_mpich_are_errors_that_name_ranks) {
  expect_all_well(Mpi::mpich, 3, "mpi_ranks", kFaults);
}

TEST(comm_mpi_ranks, by_default_calls_that_wait_for_each_other_are_named_in_seconds_by_open_mpi) {
  expect_all_well(Mpi::open, 3, "mpi_ranks", kStalled);
}
TEST(comm_mpi_ranks, by_default_calls_that_wait_for_each_other_are_named_in_seconds_by_mpich) {
  expect_all_well(Mpi::mpich, 3, "mpi_ranks", kStalled);
}

namespace {

void expect_wrong_programs_are_named(Mpi mpi, int n) {
  for (const char* part : {"0", "1", "2", "3"})
    expect_all_well(mpi, n, "mpi_ranks", kByDefault, {{"TRIREME_TEST_PART", part}});
}

}  // namespace

TEST(comm_mpi_ranks, by_default_wrong_programs_that_open_mpi_survives_are_named) {
  expect_wrong_programs_are_named(Mpi::open, 2);
}
TEST(comm_mpi_ranks, by_default_wrong_programs_of_three_ranks_that_open_mpi_survives_are_named) {
  expect_wrong_programs_are_named(Mpi::open, 3);
}
TEST(comm_mpi_ranks, by_default_every_wrong_program_is_named_under_mpich) {
  expect_wrong_programs_are_named(Mpi::mpich, 2);
}
TEST(comm_mpi_ranks, by_default_every_wrong_program_of_three_ranks_is_named_under_mpich) {
  expect_wrong_programs_are_named(Mpi::mpich, 3);
}

TEST(comm_mpi_ranks, by_default_a_rank_that_left_is_named_in_seconds) {
  expect_all_well(Mpi::open, 3, "mpi_ranks", kLeft);
  expect_all_well(Mpi::mpich, 3, "mpi_ranks", kLeft);
}
TEST(comm_mpi_ranks, a_rank_whose_program_ends_with_its_group_alive_is_named_in_seconds) {
  expect_all_well(Mpi::open, 3, "mpi_ranks", kLeftByExit);
  expect_all_well(Mpi::mpich, 3, "mpi_ranks", kLeftByExit);
}

namespace {

/// One secret for each rank.
std::string write_secrets(const PrivateFolder& folder, const std::string& of_0,
                          const std::string& of_1) {
  int rank = 0;
  for (const std::string& text : {of_0, of_1}) {
    const std::string path = folder / std::to_string(rank++);
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), 0600), 0);
  }
  return folder.path();
}

}  // namespace

TEST(comm_mpi_ranks, ranks_of_several_hosts_meet_at_a_port_with_a_secret) {
  expect_all_well(Mpi::open, 2, "mpi_ranks", kLeft, {{"TRIREME_TEST_HOSTS", "1"}});
  PrivateFolder folder;
  const std::string secret(32, 'a');
  expect_all_well(Mpi::mpich, 2, "mpi_ranks", kLeft,
                  {{"TRIREME_TEST_HOSTS", "1"},
                   {"TRIREME_TEST_SECRETS", write_secrets(folder, secret, secret)}});
}
TEST(comm_mpi_ranks, a_rank_with_another_secret_is_not_let_to_the_table_and_the_job_goes_on) {
  PrivateFolder folder;
  expect_all_well(
      Mpi::open, 2, "mpi_ranks", kStalled,
      {{"TRIREME_TEST_HOSTS", "1"},
       {"TRIREME_TEST_SECRETS", write_secrets(folder, std::string(32, 'a'), std::string(32, 'b'))}},
      "secret");
}
TEST(comm_mpi_ranks, ranks_that_do_not_reach_the_table_tell_each_other_by_mpi) {
  expect_all_well(Mpi::open, 3, "mpi_ranks", kStalled, kNoTable, "No route to host");
  expect_all_well(Mpi::mpich, 3, "mpi_ranks", kStalled, kNoTable, "No route to host");
  expect_all_well(Mpi::open, 2, "mpi_guest_openmpi", kDesync, kNoTable, "No route to host");
}

TEST(comm_mpi_ranks, a_late_rank_under_open_mpi_is_reported_once_a_stall_and_left_alone) {
  expect_all_well(Mpi::open, 3, "mpi_ranks", {"late"});
}
TEST(comm_mpi_ranks, a_late_rank_under_mpich_is_reported_once_a_stall_and_left_alone) {
  expect_all_well(Mpi::mpich, 3, "mpi_ranks", {"late"});
}
TEST(comm_mpi_ranks, a_child_that_uses_its_parents_group_is_refused_and_does_no_harm) {
  expect_all_well(Mpi::open, 2, "mpi_ranks", {"forked"});
  expect_all_well(Mpi::mpich, 2, "mpi_ranks", {"forked"});
}

TEST(comm_mpi_ranks, thirty_wrong_programs_under_open_mpi_raise_on_both_ranks) {
  expect_all_well(Mpi::open, 2, "mpi_ranks", kDesync);
}
TEST(comm_mpi_ranks, thirty_wrong_programs_under_open_mpi_raise_on_three_ranks) {
  expect_all_well(Mpi::open, 3, "mpi_ranks", kDesync);
}
TEST(comm_mpi_ranks, thirty_wrong_programs_under_mpich_raise_on_both_ranks) {
  expect_all_well(Mpi::mpich, 2, "mpi_ranks", kDesync);
}
TEST(comm_mpi_ranks, thirty_wrong_programs_under_mpich_raise_on_three_ranks) {
  expect_all_well(Mpi::mpich, 3, "mpi_ranks", kDesync);
}

TEST(comm_mpi_ranks, a_communicator_of_the_program_under_open_mpi) {
  expect_all_well(Mpi::open, 3, "mpi_guest_openmpi", {"own_communicator"});
}
TEST(comm_mpi_ranks, a_communicator_of_the_program_under_mpich) {
  expect_all_well(Mpi::mpich, 3, "mpi_guest_mpich", {"own_communicator"});
}
TEST(comm_mpi_ranks, wrong_programs_in_a_communicator_of_the_program_raise_on_all_ranks) {
  expect_all_well(Mpi::open, 2, "mpi_guest_openmpi", kDesync);
  expect_all_well(Mpi::mpich, 3, "mpi_guest_mpich", kDesync);
}
TEST(comm_mpi_ranks, a_group_on_a_communicator_leaves_dumps_of_its_calls) {
  PrivateFolder folder;
  expect_all_well(Mpi::open, 2, "mpi_guest_openmpi", {"recorded"},
                  {{"TRIREME_FLIGHT_DIR", folder.path()}});
  const auto all = flight::read_dumps(folder.path());
  if (all.empty() && !why_not(Mpi::open).empty()) GTEST_SKIP() << why_not(Mpi::open);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].backend, "mpi");
  const auto verdict = flight::judge(all);
  EXPECT_NE(verdict.sentence.find("called all_reduce(float32[7], sum) at "), std::string::npos)
      << verdict.sentence;
}
TEST(comm_mpi_ranks, a_low_thread_level_is_refused) {
  expect_all_well(Mpi::open, 1, "mpi_guest_openmpi", {"low_level"});
  expect_all_well(Mpi::mpich, 1, "mpi_guest_mpich", {"low_level"});
}

// Hydra tells its ranks no job id, and both jobs have the default MASTER_PORT.
TEST(comm_mpi_ranks, two_jobs_of_one_user_under_mpich_do_not_meet) {
  if (const auto why = why_not(Mpi::mpich); !why.empty()) GTEST_SKIP() << why;
  const Environment env{{"OMP_NUM_THREADS", "1"}, {"MASTER_PORT", std::to_string(free_tcp_port())}};
  std::vector<std::unique_ptr<Command>> jobs;
  for (int i = 0; i < 2; ++i)
    jobs.push_back(std::make_unique<Command>(
        mpi_ranks(Mpi::mpich, 2, "mpi_ranks", {"beside_another"}), CommandOptions{env, {}}));
  for (auto& job : jobs) {
    EXPECT_EQ(job->finish(std::chrono::seconds(30)), 0) << job->out << job->err;
    EXPECT_EQ(count(job->out + job->err, "all is well"), 2) << job->out << job->err;
  }
}

TEST(comm_mpi_ranks, a_rank_that_exits_or_dies_ends_its_job_under_open_mpi) {
  expect_the_launcher_ends_it(Mpi::open, "one_exits");
  expect_the_launcher_ends_it(Mpi::open, "one_is_killed");
}
TEST(comm_mpi_ranks, a_rank_that_exits_or_dies_ends_its_job_under_mpich) {
  expect_the_launcher_ends_it(Mpi::mpich, "one_exits");
  expect_the_launcher_ends_it(Mpi::mpich, "one_is_killed");
}

TEST(comm_mpi_ranks, a_process_that_mpirun_did_not_start_is_refused) {
  if (!std::filesystem::exists(trireme::testing::build_path("/tests/mpi_ranks")))
    GTEST_SKIP() << "this build has no MPI";
  expect_refused("mpi_ranks", {}, "is for ranks that mpirun or srun started");
  expect_refused("mpi_ranks", {{"TRIREME_MPI", "mpi3"}},
                 "TRIREME_MPI=mpi3: it must be openmpi or mpich");
}

TEST(comm_mpi_ranks, another_mpi_than_the_launchers_is_refused) {
  for (Mpi mpi : {Mpi::open, Mpi::mpich})
    if (const auto why = why_not(mpi); !why.empty()) GTEST_SKIP() << why;
  Command job(mpi_ranks(Mpi::open, 2, "mpi_ranks", {}), {own_job({{"TRIREME_MPI", "mpich"}}), {}});
  EXPECT_EQ(job.finish(), 1) << job.out << job.err;
  EXPECT_NE(job.err.find("this job has 2 ranks, but MPICH"), std::string::npos) << job.err;
}

}  // namespace
}  // namespace trireme::testing::ranks_test
