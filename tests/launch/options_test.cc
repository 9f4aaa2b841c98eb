// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/flags/options.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <map>

#include "trireme/base/error.h"

namespace trireme::launch::options_test {
namespace {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

Getenv from(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

RunOptions parse(const Words& words, const Variables& variables = {},
                 LocalDevices devices = {6, 0}) {
  return parse_run_options(words, from(variables), [devices] { return devices; });
}

std::string refusal(const Words& words, const Variables& variables = {}) {
  try {
    parse(words, variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(launch_options, every_spelling_of_a_flag_means_the_same) {
  for (const Words& words : std::vector<Words>{{"--nproc-per-node", "3", "prog"},
                                               {"--nproc_per_node", "3", "prog"},
                                               {"--nproc-per-node=3", "prog"},
                                               {"--nproc_per_node=3", "prog"}}) {
    auto options = parse(words);
    EXPECT_EQ(options.nproc_per_node, 3);
    EXPECT_EQ(options.command, Words{"prog"});
  }
}

TEST(launch_options, short_flags_take_their_value_in_every_form) {
  for (const Words& words :
       std::vector<Words>{{"-r", "3", "p"}, {"-r3", "p"}, {"-r=3", "p"}, {"--redirects=3", "p"}})
    EXPECT_EQ(parse(words).redirects.at(0), 3);
  EXPECT_EQ(parse({"-t", "1", "p"}).tee.at(0), 1);
  EXPECT_TRUE(parse({"-h"}).help);
}

TEST(launch_options, the_first_positional_ends_the_flags) {
  auto options =
      parse({"--nproc-per-node", "2", "main.py", "--r=16", "--nproc-per-node", "9", "--"});
  EXPECT_EQ(options.nproc_per_node, 2);
  EXPECT_EQ(options.command, (Words{"main.py", "--r=16", "--nproc-per-node", "9", "--"}));
  EXPECT_EQ(parse({"--", "--odd-name", "x"}).command, (Words{"--odd-name", "x"}));
}

TEST(launch_options, a_prefix_is_no_flag_and_the_error_names_the_nearest) {
  EXPECT_SAYS(refusal({"--nproc-per-nod", "2", "p"}), "did you mean --nproc-per-node?");
  EXPECT_SAYS(refusal({"--r=16", "p"}), "unknown flag --r=16");
  EXPECT_SAYS(refusal({"--mastr_port=1", "p"}), "did you mean --master-port?");
  EXPECT_SAYS(refusal({"-x", "p"}), "unknown flag -x");
}

TEST(launch_options, a_flag_wins_over_PET_which_wins_over_the_default) {
  Variables pet{{"PET_NPROC_PER_NODE", "5"}, {"PET_RDZV_ID", "job7"}, {"PET_REDIRECTS", "2"}};
  auto options = parse({"--nproc-per-node=2", "p"}, pet);
  EXPECT_EQ(options.nproc_per_node, 2);
  EXPECT_EQ(options.rdzv_id, "job7");
  EXPECT_EQ(options.redirects.at(0), 2);
  ASSERT_EQ(options.notes.size(), 2u);  // one line for each that was used
  EXPECT_EQ(options.notes[0], "--rdzv-id=job7 from PET_RDZV_ID");
  EXPECT_EQ(parse({"p"}, pet).nproc_per_node, 5);
  EXPECT_EQ(parse({"p"}, {{"PET_N_PROC_PER_NODE", "4"}}).nproc_per_node, 4);
  EXPECT_EQ(parse({"p"}, {{"PET_NPROC_PER_NODE", ""}}).nproc_per_node, 1);
}

TEST(launch_options, an_empty_boolean_variable_is_true_and_zero_is_false) {
  EXPECT_TRUE(parse({"p"}, {{"PET_STANDALONE", ""}}).standalone);
  EXPECT_TRUE(parse({"p"}, {{"PET_STANDALONE", "1"}}).standalone);
  EXPECT_FALSE(parse({"p"}, {{"PET_STANDALONE", "0"}}).standalone);
  EXPECT_SAYS(refusal({"p"}, {{"PET_STANDALONE", "yes"}}), "PET_STANDALONE=yes");
}

TEST(launch_options, nproc_takes_a_number_or_what_the_machine_has) {
  EXPECT_EQ(parse({"--nproc-per-node=cpu", "p"}).nproc_per_node, 6);
  EXPECT_EQ(parse({"--nproc-per-node=auto", "p"}).nproc_per_node, 6);
  EXPECT_EQ(parse({"--nproc-per-node=auto", "p"}, {}, {6, 2}).nproc_per_node, 2);
  EXPECT_EQ(parse({"--nproc-per-node=gpu", "p"}, {}, {6, 2}).nproc_per_node, 2);
  for (const char* bad : {"0", "-1", "many", "2x", "99999999999"})
    EXPECT_SAYS(refusal({std::string("--nproc-per-node=") + bad, "p"}), "--nproc-per-node=");
  EXPECT_SAYS(refusal({"--nproc-per-node=gpu", "p"}), "no GPU");
  EXPECT_SAYS(refusal({"p"}, {{"PET_NPROC_PER_NODE", "x"}}), "PET_NPROC_PER_NODE=x");
}

TEST(launch_options, what_is_not_supported_is_refused_in_a_sentence) {
  EXPECT_SAYS(refusal({"--rdzv-backend=zookeeper", "p"}), "c10d needs no server");
  EXPECT_SAYS(refusal({"--rdzv-backend=etcd-v2", "p"}), "only version 3");
  EXPECT_SAYS(refusal({"--rdzv-endpoint=far.example:29400", "p"}), "is not this host");
  EXPECT_SAYS(refusal({"-m", "module"}), "python3 -m");
  EXPECT_SAYS(refusal({"--logs-specs=x", "p"}), "plug-in");
}

TEST(launch_options, cpus_are_bound_by_node_as_torchrun_does) {
  EXPECT_EQ(parse({"p"}).cpu_binding.kind, CpuBinding::kAuto);
  EXPECT_EQ(parse({"--numa-binding=node", "p"}).cpu_binding.kind, CpuBinding::kNode);
  EXPECT_EQ(parse({"--numa_binding", "core-complex", "p"}).cpu_binding.kind,
            CpuBinding::kCoreComplex);
  EXPECT_EQ(parse({"p"}, {{"PET_NUMA_BINDING", "exclusive"}}).cpu_binding.kind,
            CpuBinding::kExclusive);
  EXPECT_SAYS(refusal({"--numa-binding=nodes", "p"}), "node, socket, exclusive or core-complex");
  EXPECT_SAYS(refusal({"--numa-binding=", "p"}), "node, socket, exclusive or core-complex");
  EXPECT_SAYS(refusal({"--numa-binding=node", "--cpu-binding=none", "p"}), "leave one of them out");
  EXPECT_FALSE(parse({"p"}).virtual_local_rank);
  EXPECT_TRUE(parse({"--virtual-local-rank", "p"}).virtual_local_rank);
  EXPECT_TRUE(parse({"p"}, {{"PET_VIRTUAL_LOCAL_RANK", "1"}}).virtual_local_rank);
}

TEST(launch_options, nodes_that_come_and_go_meet_at_an_endpoint) {
  const auto o = parse({"--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=h0",
                        "--rdzv-conf=last_call_timeout=5,join_timeout=60", "p"});
  EXPECT_EQ(o.least_nodes, 1);
  EXPECT_EQ(o.nodes, 4);
  EXPECT_EQ(o.last_call, std::chrono::seconds(5));
  EXPECT_EQ(o.join_timeout, std::chrono::seconds(60));
  EXPECT_EQ(o.warnings, std::vector<std::string>{});
  EXPECT_EQ(parse({"--nnodes=1:4", "--rdzv-backend=c10d", "--rdzv-endpoint=h0", "p"}).last_call,
            std::chrono::seconds(30));
  EXPECT_TRUE(o.come_and_go);
  const auto fixed = parse({"--nnodes=3", "--rdzv-backend=c10d", "--rdzv-endpoint=h0", "p"});
  EXPECT_EQ(fixed.least_nodes, 3);
  EXPECT_FALSE(fixed.come_and_go);
  const auto waits = parse({"--nnodes=3:3", "--rdzv-backend=c10d", "--rdzv-endpoint=h0", "p"});
  EXPECT_EQ(waits.least_nodes, 3);
  EXPECT_TRUE(waits.come_and_go) << "one that is lost is waited for";
  EXPECT_FALSE(parse({"--nnodes=1:1", "p"}).come_and_go);
  const auto numbered = parse({"--nnodes=3:3", "--master-addr=h0", "p"});
  EXPECT_FALSE(numbered.come_and_go);
  ASSERT_EQ(numbered.warnings.size(), 1u);
  EXPECT_SAYS(numbered.warnings[0], "--nnodes=3:3 is --nnodes=3 here: a node that is lost is");
  EXPECT_SAYS(refusal({"--nnodes=1:4", "--master-addr=h0", "p"}), "--rdzv-backend=c10d");
  EXPECT_SAYS(refusal({"--nnodes=4:2", "p"}), "the smaller number first");
  EXPECT_SAYS(refusal({"--nnodes=1:4", "--standalone", "p"}), "--standalone");
  for (const char* bad : {"0:2", "1:", ":2", "1:2:3", "1:99999999"})
    EXPECT_SAYS(refusal({std::string("--nnodes=") + bad, "p"}), "--nnodes");
  EXPECT_SAYS(refusal({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h0",
                       "--rdzv-conf=last_call_timeout=-1", "p"}),
              "last_call_timeout=-1 is not a number of seconds");
}

TEST(launch_options, several_nodes_meet_at_node_0_or_at_an_endpoint) {
  auto fixed = parse({"--nnodes=2:2", "--node_rank=1", "--master_addr=h0", "p"});
  EXPECT_EQ(fixed.nodes, 2);
  EXPECT_EQ(fixed.node_rank, 1);
  EXPECT_EQ(fixed.rdzv_backend, "static");
  EXPECT_EQ(fixed.master_port, 29500);
  EXPECT_EQ(fixed.meeting_host, "h0");
  auto by_endpoint = parse({"--nnodes=2", "--rdzv-endpoint=h0:1234", "p"});
  EXPECT_EQ(by_endpoint.master_addr, "h0");
  EXPECT_EQ(by_endpoint.master_port, 1234);
  auto kubeflow = parse({"p"}, {{"PET_NNODES", "3"},
                                {"PET_NPROC_PER_NODE", "4"},
                                {"PET_NODE_RANK", "2"},
                                {"PET_MASTER_ADDR", "job-node-0-0.job"},
                                {"PET_MASTER_PORT", "29400"}});
  EXPECT_EQ(kubeflow.nodes, 3);
  EXPECT_EQ(kubeflow.node_rank, 2);
  EXPECT_EQ(kubeflow.meeting_host, "job-node-0-0.job");
  auto c10d = parse({"--nnodes=4", "--rdzv-backend=c10d", "--rdzv-endpoint=h7",
                     "--rdzv-conf=join_timeout=5,is_host=true", "--local-addr=10.0.0.2", "p"});
  EXPECT_EQ(c10d.meeting_host, "h7");
  EXPECT_EQ(c10d.meeting_port, 29400);
  EXPECT_EQ(c10d.join_timeout, std::chrono::seconds(5));
  EXPECT_EQ(c10d.rdzv_is_host, true);
  EXPECT_EQ(c10d.local_addr, "10.0.0.2");
}

TEST(launch_options, a_nodes_number_comes_from_the_scheduler_where_nothing_else_says_it) {
  const Words static_nodes{"--nnodes=4", "--master-addr=h0", "p"};
  const Variables pod{{"JOB_COMPLETION_INDEX", "3"}};
  const Variables step{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}};
  const auto indexed = parse(static_nodes, pod);
  EXPECT_EQ(indexed.node_rank, 3);
  EXPECT_EQ(indexed.notes.at(0), "--node-rank=3 from JOB_COMPLETION_INDEX");
  EXPECT_EQ(parse(static_nodes, step).node_rank, 2);
  // A flag and PET_NODE_RANK come first.
  EXPECT_EQ(parse({"--nnodes=4", "--master-addr=h0", "--node-rank=1", "p"}, pod).node_rank, 1);
  EXPECT_EQ(parse(static_nodes, {{"JOB_COMPLETION_INDEX", "3"}, {"PET_NODE_RANK", "2"}}).node_rank,
            2);
  // A batch script and an salloc shell are no step, and c10d numbers nodes itself.
  EXPECT_EQ(parse(static_nodes, {{"SLURM_PROCID", "2"}}).node_rank, 0);
  EXPECT_EQ(parse(static_nodes, {{"SLURM_STEP_ID", "4294967291"}, {"SLURM_PROCID", "2"}}).node_rank,
            0);
  const auto c10d = parse({"--nnodes=4", "--rdzv-backend=c10d", "--rdzv-endpoint=h0", "p"}, pod);
  EXPECT_TRUE(c10d.warnings.empty());
  EXPECT_EQ(parse({"p"}, pod).node_rank, 0);  // one node
  EXPECT_SAYS(refusal(static_nodes, {{"JOB_COMPLETION_INDEX", "x"}}),
              "JOB_COMPLETION_INDEX=x: not the number of a node; give --node-rank");
  EXPECT_SAYS(refusal(static_nodes, {{"JOB_COMPLETION_INDEX", "4"}}), "0 to 3");
}

TEST(launch_options, asking_for_one_node_by_name_is_remembered) {
  EXPECT_FALSE(parse({"p"}).nodes_given);
  EXPECT_TRUE(parse({"--nnodes=1", "p"}).nodes_given);
  EXPECT_TRUE(parse({"p"}, {{"PET_NNODES", "1"}}).nodes_given);
}

TEST(launch_options, nodes_meet_through_the_servers_of_etcd) {
  const auto o = parse({"--nnodes=2:4", "--rdzv-backend=etcd", "--rdzv-id=job7",
                        "--rdzv-endpoint=h0, h1:99,[::1]:7,https://h2",
                        "--rdzv-conf=cacert=ca.pem,"
                        "cert=c.pem,key=k.pem,keep_alive_interval=1,keep_alive_max_attempt=5",
                        "p"});
  EXPECT_EQ(o.rdzv_backend, "etcd");
  EXPECT_EQ(o.least_nodes, 2);
  EXPECT_EQ(o.etcd.urls,
            (Words{"http://h0:2379", "http://h1:99", "http://[::1]:7", "https://h2:2379"}));
  EXPECT_EQ(o.etcd.tls.authorities, "ca.pem");
  EXPECT_EQ(o.etcd.tls.certificate, "c.pem");
  EXPECT_EQ(o.etcd.tls.key, "k.pem");
  EXPECT_EQ(o.keep_alive_interval, std::chrono::seconds(1));
  EXPECT_EQ(o.keep_alive_attempts, 5);
  EXPECT_EQ(o.warnings, Words{});
  const auto pet = parse({"p"}, {{"PET_NNODES", "3"},
                                 {"PET_RDZV_BACKEND", "etcd-v3"},
                                 {"PET_RDZV_ENDPOINT", "etcd.svc"},
                                 {"PET_RDZV_ID", "job8"},
                                 {"PET_RDZV_CONF", "protocol=https,join_timeout=9"}});
  EXPECT_EQ(pet.rdzv_backend, "etcd");
  EXPECT_EQ(pet.etcd.urls, Words{"https://etcd.svc:2379"});
  EXPECT_EQ(pet.join_timeout, std::chrono::seconds(9));
  // One node needs none, wherever it is.
  const auto one = parse({"--rdzv-backend=etcd", "--rdzv-endpoint=far.example:2379", "p"});
  EXPECT_EQ(one.notes.size(), 1u);
  const auto idle = parse({"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=a", "--node-rank=1",
                           "--rdzv-endpoint=h0", "--rdzv-conf=is_host=true", "p"});
  EXPECT_EQ(idle.warnings.size(), 2u);
}

TEST(launch_options, what_etcd_needs_is_asked_for) {
  const auto said = [](const Words& more) {
    Words words{"--nnodes=2", "--rdzv-backend=etcd"};
    words.insert(words.end(), more.begin(), more.end());
    words.push_back("p");
    return refusal(words);
  };
  EXPECT_SAYS(said({"--rdzv-id=a"}), "--rdzv-endpoint=HOST:2379");
  EXPECT_SAYS(said({"--rdzv-endpoint=h"}), "--rdzv-id=ID");
  const auto at = [&](const std::string& endpoint, const std::string& conf = "timeout=1") {
    return said({"--rdzv-id=a", "--rdzv-endpoint=" + endpoint, "--rdzv-conf=" + conf});
  };
  EXPECT_EQ(at("h"), "accepted");
  EXPECT_SAYS(at("h:port"), "'port' is not a port");
  EXPECT_SAYS(at("h:70000"), "'70000' is not a port");
  EXPECT_SAYS(at("ftp://h"), "by http or https, not by ftp");
  EXPECT_SAYS(at("http://h", "protocol=https"), "leave one of them out");
  EXPECT_SAYS(at("user:password@h"), "user and password are not taken");
  EXPECT_EQ(at("user:password@h").find("user:password"), std::string::npos) << "it is a secret";
  for (const char* bad : {"h,", ",h", "h/path:1", "h?x", "h\nX-Header", "http://"})
    EXPECT_SAYS(at(bad), "not a server of etcd's");
  EXPECT_SAYS(at("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"), "names 17 servers; at most 16");
  EXPECT_SAYS(at("h", "protocol=udp"), "neither http nor https");
  EXPECT_SAYS(at("https://h", "cert=c"), "give both or neither");
  EXPECT_SAYS(at("h", "cacert=c"), "add protocol=https");
  EXPECT_SAYS(at("h", "keep_alive_max_attempt=1"), "not a whole number from 2 to 1000");
  EXPECT_SAYS(at("h", "keep_alive_interval=0"), "not a number of seconds");
}

TEST(launch_options, what_several_nodes_need_is_asked_for) {
  EXPECT_SAYS(refusal({"--nnodes=2", "p"}), "--master-addr");
  EXPECT_SAYS(refusal({"--nnodes=2", "--rdzv-backend=c10d", "p"}), "--rdzv-endpoint=HOST:29400");
  EXPECT_SAYS(refusal({"--nnodes=2", "--master-addr=h", "--node-rank=2", "p"}), "0 to 1");
  EXPECT_SAYS(refusal({"--node-rank=1", "p"}), "--nnodes is 1");
  EXPECT_SAYS(refusal({"--nnodes=2", "--standalone", "p"}), "--standalone is for one node");
  EXPECT_SAYS(refusal({"--nnodes=0", "p"}), "--nnodes=0");
  EXPECT_SAYS(refusal({"--nnodes=two", "p"}), "--nnodes=two");
  EXPECT_SAYS(refusal({"--nnodes=2", "--master-addr=h", "--master-port=65535", "p"}), "1 to 65534");
  EXPECT_SAYS(refusal({"--nnodes=2", "--master-addr=h", "--rdzv-conf=join_timeout=x", "p"}),
              "join_timeout=x");
  EXPECT_SAYS(refusal({"--nnodes=2", "--master-addr=h", "--rdzv-conf=is_host", "p"}), "KEY=VALUE");
  std::vector<std::string> rest;
  try {
    refuse_several_nodes(
        extract_run_options({"--nnodes=2", "--master-addr=h", "a.json"}, &rest, from({})));
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_SAYS(std::string(error.what()), "--nnodes=2: this verb starts the ranks of one node");
  }
}

TEST(launch_options, restarts_may_be_counted_within_a_time) {
  EXPECT_EQ(parse({"p"}).restart_window, Duration::zero());
  EXPECT_EQ(parse({"--max-restarts=3", "--restart-window=3600", "p"}).restart_window,
            std::chrono::seconds(3600));
  for (const char* bad : {"0", "-1", "1h", "1.5", ""})
    EXPECT_SAYS(refusal({std::string("--restart-window=") + bad, "p"}), "--restart-window=");
  EXPECT_SAYS(refusal({"--restart-window=60", "p"}), "--max-restarts");
}

TEST(launch_options, a_rank_may_be_silent_for_a_minute_or_as_told) {
  using std::chrono::milliseconds;
  EXPECT_EQ(parse({"p"}).hang_timeout, std::chrono::seconds(60));
  EXPECT_EQ(parse({"--hang-timeout=2.5", "p"}).hang_timeout, milliseconds(2500));
  EXPECT_EQ(parse({"--hang_timeout", "off", "p"}).hang_timeout, Duration::zero());
  for (const char* bad : {"0", "-1", "0.05", "1m", "nan", "inf", "1e7", "OFF", ""})
    EXPECT_SAYS(refusal({std::string("--hang-timeout=") + bad, "p"}), "--hang-timeout=");
}

TEST(launch_options, restarts_are_counted_from_none) {
  EXPECT_EQ(parse({"p"}).max_restarts, 0);
  EXPECT_EQ(parse({"--max_restarts", "3", "p"}).max_restarts, 3);
  EXPECT_EQ(parse({"p"}, {{"PET_MAX_RESTARTS", "2"}}).max_restarts, 2);
  for (const char* bad : {"-1", "many", "1.5", "99999999999"})
    EXPECT_SAYS(refusal({std::string("--max-restarts=") + bad, "p"}), "--max-restarts=");
}

TEST(launch_options, a_cluster_wiki_line_for_one_node_is_accepted) {
  auto options =
      parse({"--nnodes=1:1", "--node_rank=0", "--max_restarts=0", "--rdzv_backend=c10d",
             "--rdzv_endpoint=localhost:0", "--rdzv_id", "101", "--nproc_per_node", "2", "p"});
  EXPECT_EQ(options.rdzv_id, "101");
  EXPECT_EQ(options.master_port, 0);
  auto fixed = parse({"--rdzv-endpoint=127.0.0.1:29501", "p"});
  EXPECT_EQ(fixed.master_addr, "127.0.0.1");
  EXPECT_EQ(fixed.master_port, 29501);
  auto given = parse({"--master-addr=[::1]", "--master-port=4242", "p"});
  EXPECT_EQ(given.master_addr, "[::1]");
  EXPECT_EQ(given.master_port, 4242);
}

TEST(launch_options, python_only_flags_are_taken_with_one_warning_each) {
  auto options =
      parse({"--start-method=fork", "--monitor-interval", "5", "--event-log-handler=x", "p"});
  EXPECT_EQ(options.warnings.size(), 3u);
  EXPECT_EQ(options.command, Words{"p"});
}

TEST(launch_options, redirects_name_streams_for_all_or_some_ranks) {
  auto some = StreamSelection::parse("0:1,2:3", "--tee");
  EXPECT_EQ(some.at(0), 1);
  EXPECT_EQ(some.at(1), 0);
  EXPECT_EQ(some.at(2), 3);
  EXPECT_TRUE(some.any());
  EXPECT_FALSE(StreamSelection::parse("0", "--tee").any());
  for (const char* bad : {"", "4", "-1", "0:4", "x:1", "0:1,1", "0:1,0:2", "0:"})
    EXPECT_SAYS(refusal({std::string("--tee=") + bad, "p"}), "--tee") << bad;
  EXPECT_SAYS(refusal({"--nproc-per-node=2", "--tee=2:1", "p"}), "no local rank 2");
  EXPECT_SAYS(refusal({"--local-ranks-filter=0,1", "p"}), "no local rank 1");
}

TEST(launch_options, signals_are_named_and_those_that_cannot_be_forwarded_refused) {
  EXPECT_EQ(parse({"p"}).signals_to_handle,
            (std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1}));
  EXPECT_EQ(parse({"--signals-to-handle=SIGTERM,USR1", "p"}).signals_to_handle,
            (std::vector<int>{SIGTERM, SIGUSR1}));
  EXPECT_SAYS(refusal({"--signals-to-handle=SIGKILL", "p"}), "cannot be forwarded");
  EXPECT_SAYS(refusal({"--signals-to-handle=SIGFOO", "p"}), "not a signal's name");
}

TEST(launch_options, the_shutdown_timeout_has_torchs_variable_below_the_flag) {
  using std::chrono::milliseconds;
  Variables torch{{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}};
  EXPECT_EQ(parse({"p"}).shutdown_timeout, std::chrono::seconds(30));
  EXPECT_EQ(parse({"p"}, torch).shutdown_timeout, std::chrono::seconds(7));
  EXPECT_EQ(parse({"--shutdown-timeout=0.5", "p"}, torch).shutdown_timeout, milliseconds(500));
  EXPECT_SAYS(refusal({"--shutdown-timeout=soon", "p"}), "seconds");
}

TEST(launch_options, a_missing_or_superfluous_value_is_an_error) {
  EXPECT_SAYS(refusal({"--nproc-per-node"}), "needs a value");
  EXPECT_SAYS(refusal({"--standalone=1", "p"}), "takes no value");
  EXPECT_SAYS(refusal({"--master-port=70000", "p"}), "--master-port=70000");
}

TEST(launch_options, a_verb_with_its_own_flags_gets_them_back_in_order) {
  Words rest;
  auto options =
      extract_run_options({"gpt.json", "--nproc_per_node", "2", "--set", "training.steps=3",
                           "--tee=3", "--resume", "-h", "--", "--nproc-per-node=9"},
                          &rest, from({}), [] { return LocalDevices{}; });
  EXPECT_EQ(options.nproc_per_node, 2);
  EXPECT_EQ(options.tee.at(0), 3);
  EXPECT_FALSE(options.help);
  EXPECT_EQ(rest, (Words{"gpt.json", "--set", "training.steps=3", "--resume", "-h", "--",
                         "--nproc-per-node=9"}));
}

TEST(launch_options, help_names_every_flag_that_has_an_effect) {
  std::string help = run_flags_help();
  for (const char* flag : {"--nproc-per-node", "--tee", "--cpu-binding", "--dry-run", "--log-dir"})
    EXPECT_SAYS(help, flag);
  EXPECT_EQ(help.find("--start-method"), std::string::npos);
}

}  // namespace
}  // namespace trireme::launch::options_test
