// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/flags/run_flags.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/process/signals.h"

namespace trireme::launch {
namespace {

using S = ParseState;
using V = const std::string&;

constexpr int kMostWorkers = 4096;
constexpr int kMostNodes = 1024;
constexpr int kStaticPort = 29500;  // torchrun's
constexpr int kC10dPort = 29400;

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
}

void set_nnodes(S& s, V v) {
  const auto colon = v.find(':');
  auto& o = s.options;
  o.nodes_given = true;
  o.least_nodes = static_cast<int>(whole(s, v.substr(0, colon), 1, kMostNodes));
  o.nodes = colon == std::string::npos
                ? o.least_nodes
                : static_cast<int>(whole(s, v.substr(colon + 1), 1, kMostNodes));
  check<UsageError>(o.least_nodes <= o.nodes, "{}={}: write MIN:MAX, the smaller number first",
                    s.origin, v);
}

void set_node_rank(S& s, V v) {
  s.options.node_rank = static_cast<int>(whole(s, v, 0, kMostNodes - 1));
  s.node_rank_given = true;
}

void set_rdzv_backend(S& s, V v) {
  check<UsageError>(v == "static" || v == "c10d" || v.empty(),
                    "{}={}: not supported; c10d needs no server beside the launchers, and static "
                    "(the default) no more than --master-addr and --node-rank",
                    s.origin, v);
  s.options.rdzv_backend = v.empty() ? "static" : v;
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
       "nodes; start the same line on each; MIN:MAX: they may come and go [1]", set_nnodes},
      {"node-rank", 0, true, "K", "this node's number from 0; c10d numbers them as they come [0]",
       set_node_rank},
      {"rdzv-id", 0, true, "ID", "job id, TORCHELASTIC_RUN_ID of the workers [none]", set_rdzv_id},
      {"rdzv-backend", 0, true, "NAME",
       "static: node 0 is at --master-addr; c10d: nodes meet at --rdzv-endpoint [static]",
       set_rdzv_backend},
      {"rdzv-endpoint", 0, true, "HOST[:PORT]",
       "where the nodes meet; one of them has this address", set_rdzv_endpoint},
      {"rdzv-conf", 0, true, "K=V,…", "join_timeout=SECONDS [600], is_host=true|false",
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
      {"role", 0, true, "NAME", "name in ROLE_NAME and in the prefix of console lines [default]",
       [](S& s, V v) { s.options.role = v; }},
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

bool is_this_host(std::string_view host) {
  if (host.empty() || host == "localhost" || host == "::1" || host == "[::1]" ||
      host.substr(0, 4) == "127.")
    return true;
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return false;
  std::string_view ours(name);
  return host == ours || host.substr(0, host.find('.')) == ours.substr(0, ours.find('.'));
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

struct HostPort {
  std::string host;
  int port = 0;  // 0: not said
};

HostPort parse_endpoint(const S& s) {
  std::string_view host = s.rdzv_endpoint, port;
  const auto colon = host.rfind(':');
  const bool bracketed = colon != std::string_view::npos && colon > 0 && host[colon - 1] == ']';
  if (colon != std::string_view::npos && (host.find(':') == colon || bracketed)) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  const auto number = parse_int(port.empty() ? "0" : port);
  check<UsageError>(number && *number >= 0 && *number <= 65535,
                    "--rdzv-endpoint={}: '{}' is not a port", s.rdzv_endpoint, port);
  return {std::string(host), static_cast<int>(*number)};
}

Duration seconds_of(std::string_view name, std::string_view value, double least) {
  const auto seconds = parse_number(value);
  check<UsageError>(seconds && *seconds >= least && *seconds <= 1e6,
                    "--rdzv-conf: {}={} is not a number of seconds", name, value);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
}

void settle_conf(S& s) {
  if (s.rdzv_conf.empty()) return;
  auto& o = s.options;
  if (o.nodes == 1) {
    o.warnings.push_back("--rdzv-conf has no effect here: one node needs no rendezvous");
    return;
  }
  for (const auto part : split(s.rdzv_conf, ',')) {
    const auto equals = part.find('=');
    check<UsageError>(equals != std::string_view::npos, "--rdzv-conf={}: '{}' is not KEY=VALUE",
                      s.rdzv_conf, part);
    const auto name = trim(part.substr(0, equals)), value = trim(part.substr(equals + 1));
    if (name == "join_timeout" || name == "timeout") {
      o.join_timeout = seconds_of(name, value, 1e-3);
    } else if (name == "is_host") {
      const bool yes = value == "1" || value == "true" || value == "True";
      check<UsageError>(yes || value == "0" || value == "false" || value == "False",
                        "--rdzv-conf: is_host={} is neither true nor false", value);
      o.rdzv_is_host = yes;
    } else if (name == "last_call_timeout" && o.least_nodes < o.nodes) {
      o.last_call = seconds_of(name, value, 0);
    } else {
      o.warnings.push_back(fmt::format("--rdzv-conf: {} has no effect here", name));
    }
  }
}

/// From whoever started a launcher on each node without a number of ours: an Indexed Job of
/// Kubernetes, or srun, whose tasks are the launchers.
void number_from_scheduler(S& s) {
  if (s.node_rank_given) return;
  const Getenv& env = *s.env;
  const auto said = [&](const char* name) { return env(name).value_or(""); };
  std::string name = "JOB_COMPLETION_INDEX";
  // In a batch script and an salloc shell SLURM_PROCID is 0, whatever is started from there.
  const std::string step = said("SLURM_STEP_ID"), batch = "4294967291";
  if (said(name.c_str()).empty() && !step.empty() && step != batch) name = "SLURM_PROCID";
  const std::string value = said(name.c_str());
  if (value.empty()) return;
  const auto number = parse_int(value);
  check<UsageError>(number && *number >= 0 && *number < kMostNodes,
                    "{}={}: not the number of a node; give --node-rank", name, value);
  s.options.node_rank = static_cast<int>(*number);
  s.options.notes.push_back(fmt::format("--node-rank={} from {}", value, name));
}

/// Where the launchers of several nodes meet.
void settle_meeting(S& s) {
  auto& o = s.options;
  check<UsageError>(!o.standalone,
                    "--standalone is for one node, and --nnodes says {}: leave one of them out",
                    o.nodes);
  check<UsageError>(o.least_nodes == o.nodes || o.rdzv_backend == "c10d",
                    "--nnodes={}:{}: nodes that come and go meet at an endpoint: add "
                    "--rdzv-backend=c10d --rdzv-endpoint=HOST:{}",
                    o.least_nodes, o.nodes, kC10dPort);
  const HostPort endpoint = parse_endpoint(s);
  if (o.rdzv_backend == "c10d") {
    check<UsageError>(!endpoint.host.empty(),
                      "--nnodes={} with c10d: name the host where the nodes meet, as in "
                      "--rdzv-endpoint=HOST:{}",
                      o.nodes, kC10dPort);
    if (s.node_rank_given)
      o.warnings.push_back("--node-rank has no effect here: c10d numbers nodes as they come");
    if (s.master_addr_given)
      o.warnings.push_back("--master-addr has no effect here: c10d takes the first node's address");
    o.meeting_host = endpoint.host;
    o.meeting_port = endpoint.port ? endpoint.port : kC10dPort;
    return;
  }
  if (!endpoint.host.empty()) {
    o.master_addr = endpoint.host;
    if (endpoint.port) o.master_port = endpoint.port;
  }
  check<UsageError>(!endpoint.host.empty() || s.master_addr_given,
                    "--nnodes={}: name node 0's host with --master-addr, the same on every node",
                    o.nodes);
  number_from_scheduler(s);
  check<UsageError>(o.node_rank < o.nodes, "--node-rank={}: {} nodes have the numbers 0 to {}",
                    o.node_rank, o.nodes, o.nodes - 1);
  if (o.master_port == 0) o.master_port = kStaticPort;
  check<UsageError>(
      o.master_port < 65535,
      "--master-port={}: the launchers meet at one of the ports after it; choose 1 to 65534",
      o.master_port);
  o.meeting_host = o.master_addr;
}

void settle_rendezvous(S& s) {
  auto& o = s.options;
  settle_conf(s);
  if (o.nodes > 1) return settle_meeting(s);
  check<UsageError>(o.node_rank == 0, "--node-rank={}: --nnodes is 1, so the only node is 0",
                    o.node_rank);
  if (o.standalone) {
    if (!s.rdzv_given.empty())
      o.notes.push_back(s.rdzv_given.front() +
                        " is not needed: --standalone settles the rendezvous");
    o.rdzv_id = "none";
    return;
  }
  if (s.rdzv_endpoint.empty()) return;
  const HostPort endpoint = parse_endpoint(s);
  check<UsageError>(is_this_host(endpoint.host),
                    "--rdzv-endpoint={}: {} is not this host, and --nnodes is 1", s.rdzv_endpoint,
                    endpoint.host);
  if (o.rdzv_backend == "static") {
    o.master_addr = endpoint.host.empty() ? "127.0.0.1" : endpoint.host;
    o.master_port = endpoint.port;
  } else {
    o.notes.push_back("--rdzv-endpoint is not needed: one node meets inside this launcher");
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
  settle_nproc(s);
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
