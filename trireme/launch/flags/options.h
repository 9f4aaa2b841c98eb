// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"
#include "trireme/launch/flags/stream_selection.h"
#include "trireme/launch/machine/cpu.h"
#include "trireme/launch/roles.h"
#include "trireme/net/secret.h"
#include "trireme/rendezvous/etcd/servers.h"
#include "trireme/rendezvous/facts/facts.h"

// The flags of `trireme run`, which are torchrun's. Each has a dashed and an underscored spelling,
// takes its value after '=' or as the next word, and falls back to PET_<NAME>. Names are never
// guessed from prefixes. What one node cannot do is refused in a sentence; nothing is silently
// ignored.
namespace trireme::launch {

using net::Getenv;
using net::process_env;

struct RunOptions {
  int nproc_per_node = 1;
  bool standalone = false;
  std::string rdzv_id = "none";           // becomes TORCHELASTIC_RUN_ID; random with --standalone
  std::string master_addr = "127.0.0.1";  // for workers that bring their own store (Python)
  int master_port = 0;                    // 0: a free one, chosen by the kernel
  std::string role = "default";
  std::vector<RoleCount> roles;  // of the whole job; empty: all are `role`
  std::string log_dir;           // "": no files, unless redirects or tee ask for them
  /// Where ranks write down their last calls when a group fails; made when that happens. "": in the
  /// log folder, where there is one.
  std::string flight_dir;
  StreamSelection redirects;
  StreamSelection tee;
  std::vector<int> local_ranks_filter;  // empty: all on the console
  bool no_python = false;
  std::vector<int> signals_to_handle;  // forwarded to workers
  Duration shutdown_timeout = std::chrono::seconds(30);
  int max_restarts = 0;       // of all workers, after one of them failed
  Duration restart_window{};  // only restarts within it count; zero: all of the job
  /// A rank that marks its progress may be silent for so long, or for ten of its steps, before all
  /// are ended; zero: for ever.
  Duration hang_timeout = std::chrono::seconds(60);
  CpuBinding cpu_binding;
  /// LOCAL_RANK is 0 for each worker, which sees one GPU of the host's.
  bool virtual_local_rank = false;
  bool dry_run = false;
  bool help = false;
  /// The program and its arguments, from the first word that is not a flag.
  std::vector<std::string> command;
  /// Lines for the log: "from PET_…" and what has no effect here.
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
  // Several nodes.
  int nodes = 1;
  bool nodes_given = false;             // --nnodes, also 1: a launcher is asked for
  bool come_and_go = false;             // --nnodes=MIN:MAX, of which both may be the same
  int least_nodes = 1;                  // MIN; `nodes` is MAX
  int node_rank = 0;                    // static; c10d and etcd number nodes as they come
  std::string rdzv_backend = "static";  // or c10d, etcd
  std::string meeting_host;             // where the launchers' store is
  int meeting_port = 0;                 // c10d; static: one of those after master_port
  std::optional<bool> rdzv_is_host;     // c10d: keep the store here, or do not; else by the address
  EtcdServers etcd;
  /// After so many intervals without a sign of its launcher, the store's place in etcd is free.
  Duration keep_alive_interval = std::chrono::seconds(5);
  int keep_alive_attempts = 3;
  /// This node's, as others reach it. "": its name; etcd: its address on the way there.
  std::string local_addr;
  /// A file that all nodes of an elastic job see: beside it generations are claimed. "": nowhere.
  std::string claims;
  bool neighbour_copies = false;  // of what ranks have in memory, on the next node
  Duration join_timeout = std::chrono::seconds(600);
  Duration last_call = std::chrono::seconds(30);  // for more than least_nodes, at the beginning
  /// What the nodes compare before workers start; empty: nothing.
  std::vector<Fact> facts;
};

/// How many of each this machine offers, for --nproc-per-node auto, cpu and gpu.
struct LocalDevices {
  int cpus = 1;
  int gpus = 0;
};
TRIREME_API LocalDevices local_devices(const Getenv& env = process_env);

/// Reads words up to the program's name; the rest is options.command. UsageError names what is
/// wrong.
TRIREME_API RunOptions parse_run_options(const std::vector<std::string>& args,
                                         const Getenv& env = process_env,
                                         const std::function<LocalDevices()>& devices = {});

/// For verbs that start their own program (`trireme train`): takes the launcher's flags wherever
/// they stand and leaves every other word in `rest`, in order. -h, -m, --no-python and --run-path
/// stay there.
TRIREME_API RunOptions extract_run_options(const std::vector<std::string>& args,
                                           std::vector<std::string>* rest,
                                           const Getenv& env = process_env,
                                           const std::function<LocalDevices()>& devices = {});

/// For verbs whose ranks are on one node.
TRIREME_API void refuse_several_nodes(const RunOptions& options);

/// `known` and the flags that extract_run_options takes, as "--name": for "did you mean".
TRIREME_API std::vector<std::string> with_run_flags(std::vector<std::string> known);

/// The flags that are meant to be used, one line each, for --help.
TRIREME_API std::string run_flags_help();

}  // namespace trireme::launch
