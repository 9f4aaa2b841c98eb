// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/roles.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/launch/cluster.h"
#include "tests/launch/job_process.h"
#include "trireme/base/error.h"
#include "trireme/launch/flags/options.h"
#include "trireme/launch/output.h"
#include "trireme/launch/worker_env.h"

namespace trireme::launch::roles_test {
namespace {

using std::chrono::seconds;
using Variables = std::map<std::string, std::string>;

Getenv from(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}
RunOptions parse(const Words& words, const Variables& variables = {}) {
  return parse_run_options(words, from(variables), [] { return LocalDevices{6, 0}; });
}
template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}
#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

const Words kNodes{"--rdzv-backend=c10d", "--rdzv-endpoint=host0:29400"};
Words with(Words words) {
  words.insert(words.end(), kNodes.begin(), kNodes.end());
  words.push_back("p");
  return words;
}

}  // namespace

TEST(launch_roles, every_rank_has_one_role_and_every_role_all_of_its_numbers) {
  for (int a = 1; a <= 4; ++a)
    for (int b = 1; b <= 4; ++b) {
      const std::vector<RoleCount> roles{{"server", a}, {"trainer", b}};
      std::set<std::string> names;
      int before = 0;
      for (int rank = 0; rank < a + b; ++rank) {
        const Role role = role_of(roles, rank);
        EXPECT_EQ(role.size, role.name == "server" ? a : b);
        EXPECT_TRUE(role.rank >= 0 && role.rank < role.size);
        names.insert(role.name + std::to_string(role.rank));
        EXPECT_EQ(role.name, rank < a ? "server" : "trainer");
        EXPECT_EQ(role.rank, rank < a ? before++ : rank - a);
      }
      EXPECT_EQ(names.size(), static_cast<size_t>(a + b));
      EXPECT_SAYS(refusal([&] { role_of(roles, a + b); }), "there is no role for rank");
      EXPECT_EQ(parse_roles(roles_text(roles), "--role"), roles);
    }
}

TEST(launch_roles, say_how_many_workers_start) {
  const auto options = parse({"--role", "server=1", "--role", "trainer=2", "p"});
  EXPECT_EQ(options.nproc_per_node, 3);
  EXPECT_EQ(roles_text(options.roles), "server=1,trainer=2");
  EXPECT_EQ(parse({"--role=server=1,trainer=2", "p"}).roles, options.roles);
  EXPECT_EQ(parse({"p"}, {{"PET_ROLE", "server=1,trainer=2"}}).roles, options.roles);
  EXPECT_EQ(parse({"--role=a=1", "--role=b=1", "--nproc-per-node=2", "p"}).nproc_per_node, 2);
  EXPECT_EQ(parse(with({"--role=a=1", "--role=b=3", "--nnodes=2"})).nproc_per_node, 2);
  EXPECT_EQ(parse(with({"--role=a=1", "--role=b=3", "--nnodes=2:2"})).nproc_per_node, 2);
  EXPECT_EQ(parse({"--role", "worker", "p"}).role, "worker") << "as torchrun has it";
}

TEST(launch_roles, numbers_that_do_not_add_up_are_refused) {
  EXPECT_SAYS(refusal([] {
                parse({"--role=a=1", "--role=b=1", "--nproc-per-node=3", "p"});
              }),
              "are 2 workers, and the 1 nodes of this job start 3");
  EXPECT_SAYS(refusal([] {
                parse(with({"--role=a=1", "--role=b=2", "--nnodes=2"}));
              }),
              "which 2 nodes do not share evenly");
  EXPECT_SAYS(refusal([] {
                parse(with({"--role=a=2", "--nnodes=1:2"}));
              }),
              "lets them come and go");
  EXPECT_SAYS(refusal([] {
                check_roles({{"a", 1}, {"b", 2}}, {2, 2});
              }),
              "are 3 workers, and the 2 nodes of this job start 4");
  EXPECT_EQ(refusal([] { check_roles({{"a", 1}, {"b", 2}}, {2, 1}); }), "accepted");
}

TEST(launch_roles, what_is_no_role_is_refused_with_what_to_write) {
  for (const char* text : {"a=0", "a=-1", "a=x", "a=", "a=1,b", "a=1,,b=1", "a=99999999999"})
    EXPECT_SAYS(refusal([&] { parse({"--role", text, "p"}); }), "write NAME=COUNT") << text;
  for (const char* text : {"=1", "server1=1", "a b=1", "a/b=1"})
    EXPECT_SAYS(refusal([&] { parse({"--role", text, "p"}); }), "a role's name is") << text;
  EXPECT_SAYS(refusal([] { parse({"--role=a=1", "--role=a=2", "p"}); }), "given twice");
  EXPECT_SAYS(refusal([] { parse({"--role=a=1", "--role=b", "p"}); }), "with a count and without");
  EXPECT_SAYS(refusal([] {
                Words rest;
                extract_run_options({"--role=a=2", "gpt.json"}, &rest, from({}), [] {
                  return LocalDevices{6, 0};
                });
              }),
              "the ranks of this verb are all alike");
}

TEST(launch_roles, are_in_the_variables_of_a_worker_under_torchruns_names_and_ours) {
  JobEnv job;
  job.workers_of_nodes = {2, 2};
  job.roles = {{"server", 1}, {"trainer", 3}};
  const EnvMap env = worker_env(job, place({2, 2}, 1, 0), from({}));
  EXPECT_EQ(env.at("RANK"), "2");
  for (const char* name : {"TRIREME_ROLE", "ROLE_NAME"}) EXPECT_EQ(env.at(name), "trainer");
  for (const char* name : {"TRIREME_ROLE_RANK", "ROLE_RANK"}) EXPECT_EQ(env.at(name), "1");
  for (const char* name : {"TRIREME_ROLE_SIZE", "ROLE_WORLD_SIZE"}) EXPECT_EQ(env.at(name), "3");
  // A launcher that is itself a trainer has workers that are none.
  job.roles.clear();
  const EnvMap inner = worker_env(job, place({2, 2}, 1, 0), from(env));
  for (const char* name : {"TRIREME_ROLE", "TRIREME_ROLE_RANK", "TRIREME_ROLE_SIZE"})
    EXPECT_EQ(inner.at(name), "") << name;
  EXPECT_EQ(inner.at("ROLE_NAME"), "default");
}

TEST(launch_roles, name_the_lines_of_the_console) {
  EXPECT_EQ(line_prefix(default_prefix(parse({"--role=server=1", "--role=trainer=2", "p"})),
                        {"trainer", 0, 2}, 1, 1),
            "[trainer0]:");
  EXPECT_EQ(line_prefix(default_prefix(parse({"p"})), {"default", 7, 8}, 1, 7), "[default1]:");
}

TEST(launch_roles, workers_hear_of_theirs_and_keep_it_when_they_start_again) {
  JobProcess job({"--role=server=1", "--role=trainer=2", "--max-restarts=1"},
                 "echo $RANK is $TRIREME_ROLE$TRIREME_ROLE_RANK of $TRIREME_ROLE_SIZE in attempt "
                 "$TRIREME_ATTEMPT; if [ $RANK = 1 ] && [ $TRIREME_ATTEMPT = 0 ]; then exit 3; fi; "
                 "if [ $TRIREME_ATTEMPT = 0 ]; then exec sleep 60; fi");
  EXPECT_EQ(job.wait(seconds(30)), 0) << job.err_text;
  for (const char* line : {"0 is server0 of 1 in attempt 1\n", "1 is trainer0 of 2 in attempt 1\n",
                           "2 is trainer1 of 2 in attempt 1\n"})
    EXPECT_EQ(JobProcess::count(job.out_text, line), 1) << job.out_text;
}

TEST(launch_roles, of_a_job_of_two_nodes_are_counted_over_both) {
  const Cluster cluster;
  const std::string script = "echo $RANK is $TRIREME_ROLE$TRIREME_ROLE_RANK";
  JobProcess zero = cluster.start(
      Cluster::with(cluster.at_static(2, 0, 1), {"--role=server=1", "--role=trainer=2"}), script);
  JobProcess one = cluster.start(
      Cluster::with(cluster.at_static(2, 1, 2), {"--role=server=1", "--role=trainer=2"}), script);
  EXPECT_EQ(zero.wait(seconds(30)), 0) << zero.err_text;
  EXPECT_EQ(one.wait(seconds(30)), 0) << one.err_text;
  EXPECT_EQ(zero.out_text, "0 is server0\n");
  for (const char* line : {"1 is trainer0\n", "2 is trainer1\n"})
    EXPECT_EQ(JobProcess::count(one.out_text, line), 1) << one.out_text;
}

TEST(launch_roles, that_nodes_cannot_fill_or_say_differently_are_refused_before_anything_starts) {
  const auto refused = [](const Words& of_zero, const Words& of_one, const char* why) {
    const Cluster cluster;
    JobProcess zero = cluster.start(Cluster::with(cluster.at_static(2, 0, 2), of_zero), "echo ran");
    JobProcess one = cluster.start(Cluster::with(cluster.at_static(2, 1, 2), of_one), "echo ran");
    // The launcher throws; JobProcess says so with 99.
    EXPECT_NE(zero.wait(seconds(30)), 0);
    EXPECT_NE(one.wait(seconds(30)), 0);
    EXPECT_EQ(zero.out_text + one.out_text, "");
    EXPECT_SAYS(zero.err_text + one.err_text, why);
  };
  refused({"--role=a=3"}, {"--role=a=3"}, "are 3 workers, and the 2 nodes of this job start 4");
  refused({"--role=a=4", "--rdzv-conf=join_timeout=5"},
          {"--role=b=4", "--rdzv-conf=join_timeout=5"},
          "the nodes of this job were started differently");
}

}  // namespace trireme::launch::roles_test
