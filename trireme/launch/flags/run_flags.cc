// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/flags/run_flags.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/launch/flags/rendezvous_flags.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/signals.h"

namespace trireme::launch {
namespace {

using S = ParseState;
using V = const std::string&;

constexpr int kMostWorkers = 4096;

int64_t whole(const S& s, V value, int64_t low, int64_t high) {
  auto n = parse_int(value);
  check<UsageError>(n && *n >= low && *n <= high, "{}={}: not a whole number from {} to {}",
                    s.origin, value, low, high);
  return *n;
}

void refuse(const S& s, V value, std::string_view why) {
  fail<UsageError>("{}{}: {}", s.origin, value == "1" ? "" : "=" + value, why);
}

void no_effect(S& s, std::string_view why) {
  s.options.warnings.push_back(fmt::format("{} has no effect here: {}", s.origin, why));
}

void set_nproc(S& s, V v) {
  s.nproc = v;
  s.nproc_origin = s.origin;
  s.nproc_given = true;
}

void set_nnodes(S& s, V v) {
  const auto colon = v.find(':');
  auto& o = s.options;
  o.nodes_given = true;
  o.least_nodes = static_cast<int>(whole(s, v.substr(0, colon), 1, kMostNodes));
  o.nodes = colon == std::string::npos
                ? o.least_nodes
                : static_cast<int>(whole(s, v.substr(colon + 1), 1, kMostNodes));
  o.come_and_go = colon != std::string::npos && o.nodes > 1;
  check<UsageError>(o.least_nodes <= o.nodes, "{}={}: write MIN:MAX, the smaller number first",
                    s.origin, v);
}

void set_node_rank(S& s, V v) {
  s.options.node_rank = static_cast<int>(whole(s, v, 0, kMostNodes - 1));
  s.node_rank_given = true;
}

void set_rdzv_backend(S& s, V v) {
  s.options.rdzv_backend = rdzv_backend_of(s.origin, v);
  s.rdzv_given.push_back(s.origin);
}

void set_rdzv_endpoint(S& s, V v) {
  s.rdzv_endpoint = v;
  s.rdzv_given.push_back(s.origin);
}

void set_rdzv_id(S& s, V v) {
  bool plain = !v.empty() && v.size() <= 200 && v != "." && v != ".." &&
               v.find_first_of("/\n") == std::string::npos;
  check<UsageError>(plain,
                    "{}={}: a job id names a folder of logs, so it is 1 to 200 characters "
                    "without '/'",
                    s.origin, v);
  s.options.rdzv_id = v;
  s.rdzv_given.push_back(s.origin);
}

void set_max_restarts(S& s, V v) {
  s.options.max_restarts = static_cast<int>(whole(s, v, 0, 1 << 20));
}

void set_restart_window(S& s, V v) {
  s.options.restart_window = std::chrono::seconds(whole(s, v, 1, int64_t{1} << 31));
}

void set_hang_timeout(S& s, V v) {
  const auto seconds = v == "off" ? 0 : parse_number(v);
  check<UsageError>(seconds && (v == "off" || (*seconds >= 0.1 && *seconds <= 1e6)),
                    "{}={}: not a number of seconds (0.1 to a million), nor off", s.origin, v);
  s.options.hang_timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
}

void set_master_addr(S& s, V v) {
  check<UsageError>(!v.empty(), "{} is empty: name the address that workers meet at", s.origin);
  s.options.master_addr = v;
  s.master_addr_given = true;
}

void set_filter(S& s, V v) {
  s.options.local_ranks_filter.clear();
  if (v.empty()) return;
  for (auto part : split(v, ',')) {
    auto rank = parse_int(trim(part));
    check<UsageError>(rank && *rank >= 0, "{}={}: '{}' is not a local rank; write 0 or 0,2",
                      s.origin, v, part);
    s.options.local_ranks_filter.push_back(static_cast<int>(*rank));
  }
}

void set_role(S& s, V v) {
  auto& o = s.options;
  if (v.find('=') == std::string::npos) {
    o.role = v;
    s.role_given = true;
  } else {
    for (RoleCount& role : parse_roles(v, s.origin)) {
      for (const RoleCount& other : o.roles)
        check<UsageError>(other.name != role.name, "{}={}: role {} is given twice", s.origin, v,
                          role.name);
      o.roles.push_back(std::move(role));
    }
  }
  check<UsageError>(!s.role_given || o.roles.empty(),
                    "--role is given with a count and without: write NAME=COUNT for each role, or "
                    "one name for all workers");
}

std::vector<int> parse_signals(V v) {
  std::vector<int> signals;
  for (auto part : split(v, ',')) {
    int n = signal_number(trim(part));
    check<UsageError>(n > 0,
                      "--signals-to-handle={}: '{}' is not a signal's name, as in "
                      "SIGTERM,SIGINT,SIGUSR1",
                      v, part);
    check<UsageError>(
        n != SIGKILL && n != SIGSTOP && n != SIGCHLD && n != SIGTSTP && n != SIGCONT,
        "--signals-to-handle={}: {} cannot be forwarded; choose from SIGTERM, SIGINT, "
        "SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2",
        v, part);
    if (std::find(signals.begin(), signals.end(), n) == signals.end()) signals.push_back(n);
  }
  return signals;
}

const std::vector<RunFlag>& table() {
  static const std::vector<RunFlag> flags{
      {"nproc-per-node", 0, true, "N",
       "workers to start: a number, auto (GPUs, else CPUs), cpu, gpu [1]", set_nproc},
      {"standalone", 0, false, "", "a single node on its own, with a fresh job id",
       [](S& s, V) { s.options.standalone = true; }},
      {"nnodes", 0, true, "N|MIN:MAX",
       "nodes; the same line on each; MIN:MAX: they come and go; N:N: a lost one is waited for [1]",
       set_nnodes},
      {"node-rank", 0, true, "K", "this node's number from 0; c10d numbers them as they come [0]",
       set_node_rank},
      {"rdzv-id", 0, true, "ID", "job id, TORCHELASTIC_RUN_ID of the workers [none]", set_rdzv_id},
      {"rdzv-backend", 0, true, "NAME",
       "static: node 0 is at --master-addr; c10d: nodes meet at --rdzv-endpoint; etcd: in the "
       "one there [static]",
       set_rdzv_backend},
      {"rdzv-endpoint", 0, true, "HOST[:PORT]",
       "where the nodes meet: one of them has this address; of etcd's servers, HOST[:PORT],…",
       set_rdzv_endpoint},
      {"rdzv-conf", 0, true, "K=V,…",
       "join_timeout=SECONDS [600], is_host=true|false, shared_file=PATH; etcd: protocol, cert, "
       "key, "
       "cacert",
       [](S& s, V v) { s.rdzv_conf = v; }},
      {"local-addr", 0, true, "ADDR", "this node's address, as other nodes reach it [its name]",
       [](S& s, V v) { s.options.local_addr = v; }},
      {"master-addr", 0, true, "ADDR", "MASTER_ADDR of the workers [127.0.0.1]", set_master_addr},
      {"master-port", 0, true, "PORT", "MASTER_PORT of the workers [a free one]",
       [](S& s, V v) { s.options.master_port = static_cast<int>(whole(s, v, 0, 65535)); }},
      {"max-restarts", 0, true, "N",
       "how often all workers start again after one of them failed [0]", set_max_restarts},
      {"restart-window", 0, true, "SECONDS",
       "so often within any time of this length, and not in the whole job", set_restart_window},
      {"role", 0, true, "NAME[=COUNT]",
       "ROLE_NAME, and prefix of console lines [default]; with counts, one --role each: server=1 "
       "trainer=2 are the workers server0, trainer0, trainer1",
       set_role},
      {"log-dir", 0, true, "DIR", "keep logs under DIR/<id>_<random>/attempt_0/<local rank>/",
       [](S& s, V v) { s.options.log_dir = v; }},
      {"redirects", 'r', true, "0-3|R:V,…",
       "to files: 1 stdout, 2 stderr, 3 both; or per local rank [0]",
       [](S& s, V v) { s.options.redirects = StreamSelection::parse(v, s.origin); }},
      {"tee", 't', true, "0-3|R:V,…", "to files and, with a prefix, to the console [0]",
       [](S& s, V v) { s.options.tee = StreamSelection::parse(v, s.origin); }},
      {"local-ranks-filter", 0, true, "R,…", "only these local ranks write to the console [all]",
       set_filter},
      {"no-python", 0, false, "", "start a target that ends in .py as it is",
       [](S& s, V) { s.options.no_python = true; }, false},
      {"signals-to-handle", 0, true, "SIG,…",
       "forwarded to workers [SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1]",
       [](S& s, V v) { s.signals = v; }},
      {"shutdown-timeout", 0, true, "SECONDS", "from a forwarded signal to SIGKILL [30]",
       [](S& s, V v) {
         s.shutdown_timeout = v;
         check<UsageError>(!v.empty(), "{} is empty: give seconds", s.origin);
       }},
      {"hang-timeout", 0, true, "SECONDS|off",
       "no progress of a rank for this long, or for 10 of its steps: all are ended [60]",
       set_hang_timeout},
      {"cpu-binding", 0, true, "auto|none|LIST", "CPUs of each rank; LIST is like 0-3:4-7 [auto]",
       [](S& s, V v) { s.binding = v; }},
      {"numa-binding", 0, true, "KIND",
       "CPUs near each rank's memory: node, socket, exclusive, core-complex",
       [](S& s, V v) {
         s.numa = v;
         check<UsageError>(!v.empty(), "{} is empty: write node, socket, exclusive or core-complex",
                           s.origin);
       }},
      {"virtual-local-rank", 0, false, "",
       "LOCAL_RANK is 0 for each, with one GPU in CUDA_VISIBLE_DEVICES",
       [](S& s, V) { s.options.virtual_local_rank = true; }},
      {"dry-run", 0, false, "", "print each rank's command and environment as JSON; start nothing",
       [](S& s, V) { s.options.dry_run = true; }},
      {"help", 'h', false, "", "this text", [](S& s, V) { s.options.help = true; }, false},

      // torchrun's, without meaning for us: one warning each.
      {"monitor-interval", 0, true, "SECONDS", "",
       [](S& s, V) { no_effect(s, "a worker's death is seen at once, not polled for"); }},
      {"start-method", 0, true, "NAME", "",
       [](S& s, V) { no_effect(s, "workers are programs, started by fork and exec"); }},
      {"event-log-handler", 0, true, "NAME", "",
       [](S& s, V) { no_effect(s, "it names a Python plug-in"); }},
      {"run-path", 0, false, "", "",
       [](S& s, V) { no_effect(s, "a .py target is started with python3 -u"); }, false},

      // torchrun's, refused because ignoring them would change what the user gets.
      {"module", 'm', false, "", "",
       [](S& s, V v) {
         refuse(s, v,
                "we start programs, not Python modules. Write: trireme run --no-python "
                "… python3 -m MODULE");
       },
       false},
      {"logs-specs", 0, true, "NAME", "",
       [](S& s, V v) {
         refuse(s, v, "it names a Python plug-in; use --log-dir, --redirects and --tee");
       }},
      {"duplicate-stdout-filters", 0, true, "LIST", "",
       [](S& s, V v) {
         refuse(s, v, "not supported; use --tee and grep the files under --log-dir");
       }},
      {"duplicate-stderr-filters", 0, true, "LIST", "",
       [](S& s, V v) {
         refuse(s, v, "not supported; use --tee and grep the files under --log-dir");
       }},
  };
  return flags;
}

/// Before settle_nproc(): where it is not said how many workers to start, the roles say it.
void settle_roles(S& s) {
  const auto& o = s.options;
  if (o.roles.empty()) return;
  const int all = workers_of(o.roles);
  const std::string text = roles_text(o.roles);
  check<UsageError>(o.least_nodes == o.nodes,
                    "--role {} are the {} workers of a job whose number of nodes is fixed, and "
                    "--nnodes={}:{} lets them come and go: give --nnodes=N or N:N",
                    text, all, o.least_nodes, o.nodes);
  if (s.nproc_given) return;
  check<UsageError>(all % o.nodes == 0,
                    "--role {} are {} workers, which {} nodes do not share evenly: say with "
                    "--nproc-per-node how many each node starts",
                    text, all, o.nodes);
  s.nproc = std::to_string(all / o.nodes);
  s.nproc_origin = "--role " + text + " on each node";
}

void settle_nproc(S& s) {
  auto& n = s.options.nproc_per_node;
  if (s.nproc == "auto") {
    n = s.devices.gpus ? s.devices.gpus : s.devices.cpus;
  } else if (s.nproc == "cpu") {
    n = s.devices.cpus;
  } else if (s.nproc == "gpu") {
    check<UsageError>(s.devices.gpus > 0,
                      "{}=gpu: this machine shows no GPU; write a number or cpu", s.nproc_origin);
    n = s.devices.gpus;
  } else {
    auto number = parse_int(s.nproc);
    check<UsageError>(number && *number >= 1 && *number <= kMostWorkers,
                      "{}={}: write how many workers to start (1 to {}), or auto, cpu, gpu",
                      s.nproc_origin, s.nproc, kMostWorkers);
    n = static_cast<int>(*number);
  }
}

void settle_timeout(S& s) {
  std::string name = "--shutdown-timeout", value = s.shutdown_timeout;
  if (value.empty()) {
    auto variable = (*s.env)("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    if (!variable) return;
    name = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
    value = *variable;
    s.options.notes.push_back(fmt::format("--shutdown-timeout={} from {}", value, name));
  }
  auto seconds = parse_number(value);
  check<UsageError>(seconds && *seconds >= 0 && *seconds <= 1e6,
                    "{}={}: not a number of seconds (0 to a million)", name, value);
  s.options.shutdown_timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
}

}  // namespace

const std::vector<RunFlag>& run_flags() { return table(); }

void finish(ParseState& s) {
  auto& o = s.options;
  if (o.help) return;
  settle_roles(s);
  settle_nproc(s);
  // Nodes that start different numbers of workers are compared when they have met.
  if (o.nodes == 1) check_roles(o.roles, {o.nproc_per_node});
  settle_rendezvous(s);
  settle_timeout(s);
  check<UsageError>(
      s.options.restart_window == Duration::zero() || s.options.max_restarts > 0,
      "--restart-window says within which time --max-restarts counts, and there are none: give "
      "--max-restarts=N as well");
  o.signals_to_handle = parse_signals(s.signals);
  check<UsageError>(s.numa.empty() || s.binding.empty(),
                    "--cpu-binding={} and --numa-binding={} are given: leave one of them out",
                    s.binding, s.numa);
  o.cpu_binding = s.numa.empty() ? CpuBinding::parse(s.binding.empty() ? "auto" : s.binding)
                                 : CpuBinding::parse_numa(s.numa);
  int n = o.nproc_per_node;
  for (int rank : o.local_ranks_filter)
    check<UsageError>(rank < n, "--local-ranks-filter: there is no local rank {}, only 0 to {}",
                      rank, n - 1);
  for (auto [flag, most] : {std::pair{"--redirects", o.redirects.largest_rank()},
                            std::pair{"--tee", o.tee.largest_rank()}})
    check<UsageError>(most < n, "{}: there is no local rank {}, only 0 to {}", flag, most, n - 1);
}

}  // namespace trireme::launch
