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
constexpr std::string_view kOneNode =
    "this launcher starts one node; several come with the elastic launcher. Until then start every "
    "rank with mpirun or srun, which our programs understand";

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
  if (v != "1" && v != "1:1") fail<UsageError>("{}={}: {}", s.origin, v, kOneNode);
}

void set_node_rank(S& s, V v) {
  if (v != "0") fail<UsageError>("{}={}: {}", s.origin, v, kOneNode);
}

void set_rdzv_backend(S& s, V v) {
  check<UsageError>(v == "static" || v == "c10d" || v.empty(),
                    "{}={}: one node needs 'static' or 'c10d' (the default does); {}", s.origin, v,
                    kOneNode);
  s.rdzv_backend = v.empty() ? "static" : v;
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

void set_master_addr(S& s, V v) {
  check<UsageError>(!v.empty(), "{} is empty: name the address that workers meet at", s.origin);
  s.options.master_addr = v;
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
      {"nnodes", 0, true, "1", "nodes; more than 1 is refused for now", set_nnodes},
      {"node-rank", 0, true, "0", "this node's number; 0 is the only one", set_node_rank},
      {"rdzv-id", 0, true, "ID", "job id, TORCHELASTIC_RUN_ID of the workers [none]", set_rdzv_id},
      {"rdzv-backend", 0, true, "NAME", "static or c10d; the same on one node", set_rdzv_backend},
      {"rdzv-endpoint", 0, true, "HOST[:PORT]", "must be this host; static takes it as master",
       set_rdzv_endpoint},
      {"master-addr", 0, true, "ADDR", "MASTER_ADDR of the workers [127.0.0.1]", set_master_addr},
      {"master-port", 0, true, "PORT", "MASTER_PORT of the workers [a free one]",
       [](S& s, V v) { s.options.master_port = static_cast<int>(whole(s, v, 0, 65535)); }},
      {"max-restarts", 0, true, "N",
       "how often all workers start again after one of them failed [0]", set_max_restarts},
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
      {"cpu-binding", 0, true, "auto|none|LIST", "CPUs of each rank; LIST is like 0-3:4-7 [auto]",
       [](S& s, V v) { s.binding = v; }},
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
      {"local-addr", 0, true, "ADDR", "",
       [](S& s, V) { no_effect(s, "one node publishes no address"); }},
      {"rdzv-conf", 0, true, "K=V,…", "",
       [](S& s, V v) {
         if (!v.empty()) no_effect(s, "one node needs no rendezvous");
       }},

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
      {"virtual-local-rank", 0, false, "", "",
       [](S& s, V v) {
         refuse(s, v,
                "not supported. Workers find their device by LOCAL_RANK; start them through a "
                "script that sets CUDA_VISIBLE_DEVICES from it if they cannot");
       }},
      {"numa-binding", 0, true, "KIND", "",
       [](S& s, V v) {
         refuse(s, v, "not supported; --cpu-binding auto keeps ranks on cores of their own");
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

void settle_rendezvous(S& s) {
  auto& o = s.options;
  if (o.standalone) {
    if (!s.rdzv_given.empty())
      o.notes.push_back(s.rdzv_given.front() +
                        " is not needed: --standalone settles the rendezvous");
    o.rdzv_id = "none";
    return;
  }
  if (s.rdzv_endpoint.empty()) return;
  std::string_view host = s.rdzv_endpoint, port;
  auto colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(':') == colon) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  } else if (colon != std::string_view::npos && colon > 0 && host[colon - 1] == ']') {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  check<UsageError>(is_this_host(host), "--rdzv-endpoint={}: {} is not this host; {}",
                    s.rdzv_endpoint, host, kOneNode);
  auto number = parse_int(port.empty() ? "0" : port);
  check<UsageError>(number && *number >= 0 && *number <= 65535,
                    "--rdzv-endpoint={}: '{}' is not a port", s.rdzv_endpoint, port);
  if (s.rdzv_backend == "static") {
    o.master_addr = host.empty() ? "127.0.0.1" : std::string(host);
    o.master_port = static_cast<int>(*number);
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
  o.signals_to_handle = parse_signals(s.signals);
  o.cpu_binding = CpuBinding::parse(s.binding);
  int n = o.nproc_per_node;
  for (int rank : o.local_ranks_filter)
    check<UsageError>(rank < n, "--local-ranks-filter: there is no local rank {}, only 0 to {}",
                      rank, n - 1);
  for (auto [flag, most] : {std::pair{"--redirects", o.redirects.largest_rank()},
                            std::pair{"--tee", o.tee.largest_rank()}})
    check<UsageError>(most < n, "{}: there is no local rank {}, only 0 to {}", flag, most, n - 1);
}

}  // namespace trireme::launch
