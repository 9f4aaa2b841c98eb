// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/job_plan.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/process/flight_variables.h"

namespace trireme::launch::job_plan_test {
namespace {

Getenv from(const EnvMap& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

JobEnv job_of(int nproc) {
  JobEnv job;
  job.workers_of_nodes = {nproc};
  job.master_addr = "127.0.0.1";
  job.run_id = "id9";
  job.master_port = 4711;
  job.store = "127.0.0.1:5";
  job.secret_file = "/s";
  job.error_file = "/e";
  job.threads = 3;
  return job;
}

TEST(launch_job_plan, a_worker_gets_torchruns_environment_and_ours) {
  EnvMap expected{{"RANK", "2"},
                  {"LOCAL_RANK", "2"},
                  {"ROLE_RANK", "2"},
                  {"WORLD_SIZE", "4"},
                  {"LOCAL_WORLD_SIZE", "4"},
                  {"ROLE_WORLD_SIZE", "4"},
                  {"LOCAL_SIZE", "4"},
                  {"GROUP_RANK", "0"},
                  {"GROUP_WORLD_SIZE", "1"},
                  {"CROSS_RANK", "0"},
                  {"CROSS_SIZE", "1"},
                  {"ROLE_NAME", "default"},
                  {"MASTER_ADDR", "127.0.0.1"},
                  {"MASTER_PORT", "4711"},
                  {"TORCHELASTIC_RESTART_COUNT", "0"},
                  {"TORCHELASTIC_MAX_RESTARTS", "0"},
                  {"TORCHELASTIC_RUN_ID", "id9"},
                  {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                  {"TORCHELASTIC_ERROR_FILE", "/e"},
                  {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                  {"TRIREME_ATTEMPT", "0"},
                  {"TRIREME_STORE", "127.0.0.1:5"},
                  {"TRIREME_SECRET_FILE", "/s"},
                  {"OMP_NUM_THREADS", "3"},
                  {"OPENBLAS_NUM_THREADS", "3"}};
  EXPECT_EQ(worker_env(job_of(4), place({4}, 0, 2), from({})), expected);
}

/// A launcher that says all that one can say.
JobEnv talkative_job(const std::string& who) {
  JobEnv job = job_of(4);
  job.store = who + ":5", job.attempt = 3, job.member = "6";
  job.snapshots = who + "/snapshots", job.held = "7:1", job.events = who + "/events";
  job.neighbour = true, job.flight_dir = who + "/flight";
  job.claims = who + "/claims", job.generation = 9;
  return job;
}

TEST(launch_job_plan, what_another_launcher_said_to_this_one_as_its_worker_is_not_handed_on) {
  EnvMap outer = worker_env(talkative_job("/outer"), place({4}, 0, 2), from({}));
  outer["TRIREME_SPAWN"] = "/outer/rank2:main.cc:7";
  JobEnv silent = job_of(4);
  silent.store.clear();
  const EnvMap inner = worker_env(silent, place({4}, 0, 1), from(outer));
  for (const auto& [name, value] : outer) {
    // The secret is the user's, too; the claims are those of the job that the inner one is part of.
    if (name == "TRIREME_SECRET_FILE" || name == "TRIREME_CLAIMS" || name == "TRIREME_GENERATION")
      continue;
    if (!name.starts_with("TRIREME_")) continue;
    ASSERT_EQ(inner.count(name), 1u) << name << " is inherited";
    EXPECT_EQ(inner.at(name), name == "TRIREME_ATTEMPT" ? "0" : "") << name;
  }
  EXPECT_EQ(inner.count("TRIREME_CLAIMS"), 0u) << "inherited";
  const EnvMap own = worker_env(talkative_job("/own"), place({4}, 0, 2), from(outer));
  for (const auto& [name, value] : worker_env(talkative_job("/own"), place({4}, 0, 2), from({})))
    if (name.starts_with("TRIREME_")) {
      EXPECT_EQ(own.at(name), value) << name;
    }
}

TEST(launch_job_plan, a_folder_for_flight_records_that_the_user_names_counts_in_inner_jobs_too) {
  EnvMap outer = worker_env(talkative_job("/outer"), place({4}, 0, 2), from({}));
  const auto seen_in = [](EnvMap env, const EnvMap& changes) {
    for (const auto& [name, value] : changes) env[name] = value;
    return flight_folder_in(from(env));
  };
  EXPECT_EQ(flight_folder_in(from(outer)), "/outer/flight");
  const EnvMap inner = worker_env(job_of(4), place({4}, 0, 1), from(outer));
  EXPECT_EQ(seen_in(outer, inner), "");
  outer["TRIREME_FLIGHT_DIR"] = "/user";
  EXPECT_EQ(seen_in(outer, inner), "/user");
  outer["TRIREME_FLIGHT_DIR"] = "";
  EXPECT_EQ(seen_in(outer, worker_env(talkative_job("/own"), place({4}, 0, 1), from(outer))), "");
}

TEST(launch_job_plan, what_the_user_set_of_threads_and_core_type_stays) {
  auto by_omp = math_env(3, "SkylakeX", from({{"OMP_NUM_THREADS", "8"}}));
  EXPECT_EQ(by_omp, (EnvMap{{"OPENBLAS_CORETYPE", "SkylakeX"}}));
  auto by_blas = math_env(3, "", from({{"OPENBLAS_NUM_THREADS", "8"}}));
  EXPECT_EQ(by_blas, (EnvMap{{"OMP_NUM_THREADS", "3"}}));
  EXPECT_EQ(
      math_env(3, "SkylakeX", from({{"OPENBLAS_CORETYPE", "Zen"}})).count("OPENBLAS_CORETYPE"), 0u);
}

TEST(launch_job_plan, changes_replace_what_is_inherited) {
  ::setenv("TRIREME_TEST_INHERITED", "old", 1);
  auto merged = merged_environment({{"TRIREME_TEST_INHERITED", "new"}});
  ::unsetenv("TRIREME_TEST_INHERITED");
  EXPECT_EQ(std::count(merged.begin(), merged.end(), "TRIREME_TEST_INHERITED=new"), 1);
  EXPECT_EQ(std::count(merged.begin(), merged.end(), "TRIREME_TEST_INHERITED=old"), 0);
}

JobPlan plan(const std::vector<std::string>& command, const RunOptions& options,
             const EnvMap& user = {}, const std::vector<Gpu>& gpus = {}) {
  Machine machine;
  for (int i = 0; i < 4; ++i) machine.cpus.push_back({i, 0, i});
  machine.model.flags = {"avx2", "fma"};
  machine.blas_corename = "Prescott";
  machine.gpus = gpus;
  return plan_job(options, command, machine, job_of(0), from(user));
}

TEST(launch_job_plan, each_rank_has_its_command_environment_and_cpus) {
  RunOptions options;
  options.nproc_per_node = 2;
  auto job = plan({"/bin/echo", "shard-${local_rank}.bin", "plain"}, options);
  ASSERT_EQ(job.workers.size(), 2u);
  EXPECT_EQ(job.workers[1].argv, (std::vector<std::string>{"/bin/echo", "shard-1.bin", "plain"}));
  EXPECT_EQ(job.workers[1].env.at("RANK"), "1");
  EXPECT_EQ(job.workers[1].env.at("WORLD_SIZE"), "2");
  EXPECT_EQ(job.workers[1].env.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(job.workers[1].env.at("OPENBLAS_CORETYPE"), "Haswell");
  EXPECT_EQ(job.workers[1].cpus, (std::vector<int>{2, 3}));
}

TEST(launch_job_plan, with_a_virtual_local_rank_each_worker_sees_one_gpu_as_its_first) {
  RunOptions options;
  options.nproc_per_node = 2;
  options.virtual_local_rank = true;
  const auto job = plan({"/bin/echo", "shard-${local_rank}.bin"}, options, {}, {{"3"}, {"GPU-7"}});
  for (int rank : {0, 1}) {
    const auto& env = job.workers[static_cast<size_t>(rank)].env;
    EXPECT_EQ(env.at("LOCAL_RANK"), "0");
    EXPECT_EQ(env.at("RANK"), std::to_string(rank));
    EXPECT_EQ(env.at("LOCAL_WORLD_SIZE"), "2");
    EXPECT_EQ(env.at("CUDA_VISIBLE_DEVICES"), rank ? "GPU-7" : "3");
  }
  EXPECT_EQ(job.workers[1].argv[1], "shard-1.bin") << "a file each";
  EXPECT_EQ(plan({"/bin/echo"}, options).workers[1].env.count("CUDA_VISIBLE_DEVICES"), 0u)
      << "a machine without GPUs";
  try {
    plan({"/bin/echo"}, options, {}, {{"3"}});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("there are 1 for 2 workers"), std::string::npos)
        << error.what();
  }
}

TEST(launch_job_plan, workers_are_bound_near_their_gpus) {
  RunOptions options;
  options.nproc_per_node = 2;
  options.cpu_binding = CpuBinding::parse_numa("node");
  Machine machine;
  for (int i = 0; i < 4; ++i) machine.cpus.push_back({i, 0, i, i / 2});
  machine.gpus = {{"0", 1}, {"1", 0}};
  const auto job = plan_job(options, {"/bin/echo"}, machine, job_of(0), from({}));
  EXPECT_EQ(job.workers[0].cpus, (std::vector<int>{2, 3}));
  EXPECT_EQ(job.workers[1].cpus, (std::vector<int>{0, 1}));
}

TEST(launch_job_plan, a_python_script_gets_its_interpreter_unless_told_otherwise) {
  RunOptions options;
  EnvMap user{{"PYTHON_EXEC", "/bin/echo"}};
  EXPECT_EQ(plan({"train.py", "--x"}, options, user).workers[0].argv,
            (std::vector<std::string>{"/bin/echo", "-u", "train.py", "--x"}));
  options.no_python = true;
  EXPECT_THROW(plan({"./no_such_train.py"}, options, user), UsageError);
}

TEST(launch_job_plan, a_program_that_cannot_start_is_named) {
  for (const char* program :
       {"no-such-program-anywhere", "/no/such/program", "/etc/passwd", "/tmp"}) {
    try {
      plan({program}, RunOptions());
      FAIL() << program;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(program), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(plan({}, RunOptions()), UsageError);
}

TEST(launch_job_plan, the_dry_run_is_json_of_every_rank) {
  RunOptions options;
  options.nproc_per_node = 2;
  auto json = nlohmann::json::parse(to_json(plan({"/bin/echo", "\xff"}, options)));
  ASSERT_EQ(json["workers"].size(), 2u);
  EXPECT_EQ(json["workers"][1]["local_rank"], 1);
  EXPECT_EQ(json["workers"][1]["env"]["LOCAL_RANK"], "1");
  EXPECT_EQ(json["workers"][0]["cpus"], (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace trireme::launch::job_plan_test
