// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/rank_env.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/refusals.h"
#include "trireme/base/error.h"
#include "trireme/rendezvous/slurm.h"

namespace rank_env_test {

using namespace trireme;

namespace {

using trireme::testing::has;

using Env = std::map<std::string, std::string>;

RankEnv read(const Env& env) {
  return read_rank_env([&](const std::string& name) -> std::optional<std::string> {
    auto at = env.find(name);
    return at == env.end() ? std::nullopt : std::optional(at->second);
  });
}

/// rank/world local_rank/local_world node source
std::string short_form(const Env& env) {
  auto e = read(env);
  return std::to_string(e.rank) + "/" + std::to_string(e.world_size) + " " +
         std::to_string(e.local_rank) + "/" + std::to_string(e.local_world_size) + " " +
         std::to_string(e.node_rank) + " " + e.source;
}

std::string refusal(const Env& env) {
  try {
    read(env);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

Env operator+(Env a, const Env& b) {
  for (auto& [name, value] : b) a[name] = value;
  return a;
}

const Env kTorchrun = {{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"GROUP_RANK", "1"},
                       {"MASTER_ADDR", "node0"},
                       {"MASTER_PORT", "1234"},
                       {"TORCHELASTIC_RUN_ID", "job7"},
                       {"TORCHELASTIC_RESTART_COUNT", "2"}};
const Env kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"OMPI_COMM_WORLD_NODE_RANK", "1"},  {"PMIX_RANK", "3"},
                      {"PMIX_NAMESPACE", "56623105"}};
const Env kSrun = {{"SLURM_PROCID", "4"},
                   {"SLURM_STEP_NUM_TASKS", "7"},
                   {"SLURM_NTASKS", "9"},
                   {"SLURM_LOCALID", "0"},
                   {"SLURM_NODEID", "2"},
                   {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                   {"SLURM_JOB_ID", "812"},
                   {"SLURM_STEP_ID", "0"},
                   {"SLURM_STEP_NODELIST", "gnode[10,20-22]"}};

}  // namespace

TEST(rendezvous_rank_env, only_an_agent_of_ours_or_torchs_counts_ranks_for_sure) {
  EXPECT_TRUE(read(kTorchrun).has_agent);
  EXPECT_TRUE(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"TRIREME_STORE", "h:1"}}).has_agent);
  EXPECT_FALSE(read({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).has_agent);  // pods, or ranks
  EXPECT_FALSE(read(kSrun).has_agent);
}

TEST(rendezvous_rank_env, nothing_set_is_a_world_of_one) {
  EXPECT_EQ(short_form({}), "0/1 0/1 0 none");
  EXPECT_EQ(short_form({{"RANK", ""}, {"WORLD_SIZE", ""}}), "0/1 0/1 0 none");
  EXPECT_EQ(short_form({{"WORLD_SIZE", "1"}}), "0/1 0/1 0 none");
  EXPECT_TRUE(read({}).single_host());
}

TEST(rendezvous_rank_env, reads_torchrun) {
  EXPECT_EQ(short_form(kTorchrun), "5/8 1/4 1 torchrun variables");
  auto e = read(kTorchrun + Env{{"TRIREME_STORE", "tcp://127.0.0.1:7"}});
  EXPECT_EQ(e.master_addr, "node0");
  EXPECT_EQ(e.master_port, 1234);
  EXPECT_EQ(e.job_id, "job7");
  EXPECT_EQ(e.attempt, 2);
  EXPECT_EQ(e.store_endpoint, "tcp://127.0.0.1:7");
  EXPECT_FALSE(e.single_host());
  EXPECT_TRUE(read(kTorchrun + Env{{"LOCAL_WORLD_SIZE", "8"}}).single_host());
}

TEST(rendezvous_rank_env, four_variables_by_hand_are_enough) {
  Env by_hand = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29511"}};
  EXPECT_EQ(short_form(by_hand), "1/2 1/2 0 torchrun variables");
  EXPECT_TRUE(read(by_hand).single_host());
  by_hand["MASTER_ADDR"] = "job-master-0";  // a pod each: nobody says how many are here
  EXPECT_EQ(short_form(by_hand), "1/2 0/0 -1 torchrun variables");
  EXPECT_FALSE(read(by_hand).single_host());
}

TEST(rendezvous_rank_env, reads_open_mpi) {
  EXPECT_EQ(short_form(kOpenMpi), "3/4 1/2 -1 Open MPI");
  EXPECT_EQ(read(kOpenMpi).job_id, "56623105");
  EXPECT_EQ(short_form(kOpenMpi + Env{{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}), "3/4 1/4 0 Open MPI");
}

TEST(rendezvous_rank_env, reads_pmi_and_mvapich) {
  EXPECT_EQ(short_form({{"PMI_RANK", "1"},
                        {"PMI_SIZE", "2"},
                        {"MPI_LOCALRANKID", "1"},
                        {"MPI_LOCALNRANKS", "2"}}),
            "1/2 1/2 0 PMI");
  EXPECT_EQ(short_form({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), "1/2 0/0 -1 PMI");
  EXPECT_EQ(short_form({{"MV2_COMM_WORLD_RANK", "1"},
                        {"MV2_COMM_WORLD_SIZE", "4"},
                        {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                        {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}}),
            "1/4 0/2 -1 MVAPICH");
}

TEST(rendezvous_rank_env, ranks_that_hydra_started_on_one_host_have_its_proxy_as_their_job) {
  auto job = [](const Env& env) {
    return read_rank_env(
               [&](const std::string& name) -> std::optional<std::string> {
                 auto at = env.find(name);
                 return at == env.end() ? std::nullopt : std::optional(at->second);
               },
               [] { return "hydra-7-99"; })
        .job_id;
  };
  const Env here{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_EQ(job(here), "hydra-7-99");
  EXPECT_EQ(job(here + Env{{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "hydra-7-99");
  EXPECT_EQ(job(here + Env{{"MPI_LOCALNRANKS", "1"}, {"MPI_LOCALRANKID", "0"}}), "");  // two hosts
  EXPECT_EQ(job({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), "");
  EXPECT_EQ(job(here + Env{{"FLUX_JOB_ID", "f3"}}), "f3");
  EXPECT_EQ(job(kOpenMpi), "56623105");
  EXPECT_EQ(job({}), "");
}

TEST(rendezvous_rank_env, reads_a_slurm_step) {
  EXPECT_EQ(short_form(kSrun), "4/7 0/2 2 Slurm");
  EXPECT_EQ(read(kSrun).master_addr, "gnode10");
  EXPECT_EQ(read(kSrun).job_id, "812.0");
  EXPECT_EQ(read(kSrun + Env{{"MASTER_ADDR", "other"}}).master_addr, "other");
  Env old = kSrun;
  old.erase("SLURM_STEP_NUM_TASKS");
  EXPECT_EQ(short_form(old), "4/9 0/2 2 Slurm");
  old.erase("SLURM_NTASKS");
  EXPECT_TRUE(has(refusal(old), "SLURM_PROCID=4"));
}

TEST(rendezvous_rank_env, a_batch_script_and_a_salloc_shell_are_a_world_of_one) {
  Env batch = kSrun + Env{{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}};
  batch.erase("SLURM_STEP_ID");
  EXPECT_EQ(short_form(batch), "0/1 0/1 0 none");
  EXPECT_EQ(short_form(batch + Env{{"SLURM_STEP_ID", "4294967291"}}), "0/1 0/1 0 none");
  EXPECT_EQ(short_form({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "5"}}), "0/1 0/1 0 none");
  Env interactive = batch + Env{{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}};
  EXPECT_EQ(short_form(interactive), "0/1 0/1 0 Slurm");
}

TEST(rendezvous_rank_env, pmi_under_srun_takes_the_rest_from_slurm) {
  auto e = read(kSrun + Env{{"PMI_RANK", "4"}, {"PMI_SIZE", "7"}});
  EXPECT_EQ(e.source, "PMI");
  EXPECT_EQ(e.local_world_size, 2);
  EXPECT_EQ(e.master_addr, "gnode10");
}

TEST(rendezvous_rank_env, an_agent_started_once_a_host_by_slurm_or_mpi_numbers_its_own_ranks) {
  EXPECT_EQ(short_form(kSrun + kTorchrun), "5/8 1/4 1 torchrun variables");
  EXPECT_EQ(short_form(kOpenMpi + kTorchrun), "5/8 1/4 1 torchrun variables");
  // Same world by chance, other numbers by right.
  EXPECT_EQ(read(kSrun + Env{{"SLURM_STEP_NUM_TASKS", "8"}} + kTorchrun).rank, 5);
  Env spawned = {{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"TRIREME_STORE", "unix:@x"}};
  EXPECT_EQ(read(kOpenMpi + spawned).rank, 0);
}

TEST(rendezvous_rank_env, mpirun_inside_slurm_is_open_mpi) {
  EXPECT_EQ(short_form(kSrun + kOpenMpi), "3/4 1/2 -1 Open MPI");
}

TEST(rendezvous_rank_env, sources_that_disagree_are_named_with_their_values) {
  auto what = refusal(kSrun + Env{{"RANK", "3"}, {"WORLD_SIZE", "7"}});
  EXPECT_TRUE(has(what, "RANK=3") && has(what, "SLURM_PROCID=4")) << what;
  what = refusal(kOpenMpi + Env{{"RANK", "0"}, {"WORLD_SIZE", "4"}});
  EXPECT_TRUE(has(what, "RANK=0") && has(what, "OMPI_COMM_WORLD_RANK=3")) << what;
  what = refusal(kSrun + Env{{"WORLD_SIZE", "8"}});
  EXPECT_TRUE(has(what, "WORLD_SIZE=8") && has(what, "SLURM_STEP_NUM_TASKS=7")) << what;
  // In agreement they complete each other.
  EXPECT_EQ(short_form(kSrun + Env{{"RANK", "4"}, {"WORLD_SIZE", "7"}}),
            "4/7 0/2 2 torchrun variables");
  EXPECT_EQ(short_form(kSrun + Env{{"WORLD_SIZE", "7"}}), "4/7 0/2 2 Slurm");
}

TEST(rendezvous_rank_env, half_a_place_is_refused) {
  EXPECT_TRUE(has(refusal({{"RANK", "1"}}), "WORLD_SIZE"));
  EXPECT_TRUE(has(refusal({{"WORLD_SIZE", "2"}}), "RANK"));
}

TEST(rendezvous_rank_env, impossible_numbers_are_named) {
  struct {
    const char* name;
    const char* value;
  } cases[] = {{"RANK", "8"},
               {"RANK", "-1"},
               {"RANK", "one"},
               {"RANK", " 1"},
               {"RANK", "1.0"},
               {"WORLD_SIZE", "0"},
               {"WORLD_SIZE", "99999999999"},
               {"LOCAL_RANK", "4"},
               {"LOCAL_WORLD_SIZE", "9"},
               {"LOCAL_WORLD_SIZE", "0"},
               {"MASTER_PORT", "0"},
               {"MASTER_PORT", "65536"},
               {"GROUP_RANK", "x"},
               {"TORCHELASTIC_RESTART_COUNT", "x"}};
  for (auto& [name, value] : cases) {
    auto what = refusal(kTorchrun + Env{{name, value}});
    EXPECT_TRUE(has(what, name) && has(what, value)) << name << "=" << value << ": " << what;
  }
  auto what = refusal(kOpenMpi + Env{{"OMPI_COMM_WORLD_RANK", "4"}});
  EXPECT_TRUE(has(what, "OMPI_COMM_WORLD_RANK=4") && has(what, "OMPI_COMM_WORLD_SIZE=4")) << what;
}

TEST(rendezvous_rank_env, slurm_node_lists_expand) {
  auto nodes = [](std::string_view text) {
    std::string out;
    for (auto& node : expand_slurm_nodes(text, "V")) out += (out.empty() ? "" : " ") + node;
    return out;
  };
  EXPECT_EQ(nodes("login"), "login");
  EXPECT_EQ(nodes("gnode[10,20-22,37]"), "gnode10 gnode20 gnode21 gnode22 gnode37");
  EXPECT_EQ(nodes("n[008-011]"), "n008 n009 n010 n011");
  EXPECT_EQ(nodes("a1,b[1-2]-ib,c"), "a1 b1-ib b2-ib c");
  EXPECT_EQ(nodes("r[1-2]n[1,3]"), "r1n1 r1n3 r2n1 r2n3");
  for (auto text : {"", "a[", "a]", "a[1-", "a[]", "a[x]", "a,,b", "a[3-1]", "a[[1]]",
                    "a[0-999999999]", "a[0-99999]b[0-99999]", "a[1"})
    EXPECT_THROW(expand_slurm_nodes(text, "V"), UsageError) << text;
}

TEST(rendezvous_rank_env, slurm_task_counts_expand) {
  std::string got;
  for (int node = 0; node < 5; ++node) {
    auto tasks = slurm_tasks_on_node("2(x3),1", node, "V");
    got += tasks ? std::to_string(*tasks) : "-";
  }
  EXPECT_EQ(got, "2221-");
  EXPECT_EQ(slurm_tasks_on_node("4", 0, "V"), 4);
  for (auto text : {"", "x", "2(x", "2(xa)", "2(x3", "2()", ",", "2,,3"})
    EXPECT_THROW(slurm_tasks_on_node(text, 0, "V"), UsageError) << text;
}

}  // namespace rank_env_test
