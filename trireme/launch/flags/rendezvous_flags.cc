// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/flags/rendezvous_flags.h"

#include <unistd.h>

#include "trireme/base/check.h"
#include "trireme/launch/flags/text.h"

namespace trireme::launch {
namespace {

using S = ParseState;

constexpr int kStaticPort = 29500;  // torchrun's
constexpr int kC10dPort = 29400;
constexpr int kEtcdPort = 2379;  // etcd's
constexpr size_t kMostServers = 16;

bool is_this_host(std::string_view host) {
  if (host.empty() || host == "localhost" || host == "::1" || host == "[::1]" ||
      host.substr(0, 4) == "127.")
    return true;
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return false;
  std::string_view ours(name);
  return host == ours || host.substr(0, host.find('.')) == ours.substr(0, ours.find('.'));
}

struct HostPort {
  std::string host;
  int port = 0;  // 0: not said
};

HostPort parse_endpoint(std::string_view text) {
  std::string_view host = text, port;
  const auto colon = host.rfind(':');
  const bool bracketed = colon != std::string_view::npos && colon > 0 && host[colon - 1] == ']';
  if (colon != std::string_view::npos && (host.find(':') == colon || bracketed)) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
  }
  const auto number = parse_int(port.empty() ? "0" : port);
  check<UsageError>(number && *number >= 0 && *number <= 65535,
                    "--rdzv-endpoint={}: '{}' is not a port", text, port);
  return {std::string(host), static_cast<int>(*number)};
}

Duration seconds_of(std::string_view name, std::string_view value, double least) {
  const auto seconds = parse_number(value);
  check<UsageError>(seconds && *seconds >= least && *seconds <= 1e6,
                    "--rdzv-conf: {}={} is not a number of seconds", name, value);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*seconds));
}

std::string url_of(std::string_view server, std::string_view protocol) {
  std::string scheme(protocol.empty() ? "http" : protocol);
  std::string_view rest = server;
  if (const auto at = server.find("://"); at != std::string_view::npos) {
    scheme = server.substr(0, at);
    rest = server.substr(at + 3);
  }
  check<UsageError>(scheme == "http" || scheme == "https",
                    "--rdzv-endpoint={}: etcd is asked by http or https, not by {}", server,
                    scheme);
  check<UsageError>(protocol.empty() || scheme == protocol,
                    "--rdzv-endpoint={} and --rdzv-conf=protocol={}: leave one of them out", server,
                    protocol);
  check<UsageError>(rest.find('@') == std::string_view::npos,
                    "--rdzv-endpoint: etcd's user and password are not taken; name the server "
                    "alone, HOST:{}",
                    kEtcdPort);
  HostPort at = parse_endpoint(rest);
  const bool plain = at.host.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789.-_:[]") == std::string::npos;
  check<UsageError>(!at.host.empty() && plain,
                    "--rdzv-endpoint={}: not a server of etcd's; write HOST:{}, and several with "
                    "commas between them",
                    server, kEtcdPort);
  if (at.host.find(':') != std::string::npos && at.host.front() != '[')
    at.host = "[" + at.host + "]";
  return fmt::format("{}://{}:{}", scheme, at.host, at.port ? at.port : kEtcdPort);
}

bool set_etcd_conf(S& s, std::string_view name, std::string_view value) {
  auto& tls = s.options.etcd.tls;
  if (name == "protocol") {
    check<UsageError>(value == "http" || value == "https",
                      "--rdzv-conf: protocol={} is neither http nor https", value);
    s.etcd_protocol = value;
  } else if (name == "cacert") {
    tls.authorities = value;
  } else if (name == "cert") {
    tls.certificate = value;
  } else if (name == "key") {
    tls.key = value;
  } else if (name == "keep_alive_interval") {
    s.options.keep_alive_interval = seconds_of(name, value, 0.1);
  } else if (name == "keep_alive_max_attempt") {
    const auto attempts = parse_int(value);
    check<UsageError>(attempts && *attempts >= 2 && *attempts <= 1000,
                      "--rdzv-conf: {}={} is not a whole number from 2 to 1000", name, value);
    s.options.keep_alive_attempts = static_cast<int>(*attempts);
  } else {
    return false;
  }
  return true;
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
    } else if (o.rdzv_backend == "etcd" && set_etcd_conf(s, name, value)) {
      continue;
    } else if (name == "is_host" && o.rdzv_backend != "etcd") {
      const bool yes = value == "1" || value == "true" || value == "True";
      check<UsageError>(yes || value == "0" || value == "false" || value == "False",
                        "--rdzv-conf: is_host={} is neither true nor false", value);
      o.rdzv_is_host = yes;
    } else if (name == "last_call_timeout" && o.come_and_go) {
      o.last_call = seconds_of(name, value, 0);
    } else if (name == "shared_file" && o.come_and_go) {
      check<UsageError>(
          value.starts_with('/') && !value.ends_with('/'),
          "--rdzv-conf: shared_file={} is not the path of a file from the root on, in "
          "a folder that all nodes see",
          value);
      o.claims = value;
    } else {
      o.warnings.push_back(fmt::format("--rdzv-conf: {} has no effect here", name));
    }
  }
}

void settle_etcd(S& s) {
  auto& o = s.options;
  check<UsageError>(!s.rdzv_endpoint.empty(),
                    "--nnodes={} with etcd: name its servers, as in --rdzv-endpoint=HOST:{}",
                    o.nodes, kEtcdPort);
  check<UsageError>(o.rdzv_id != "none",
                    "--nnodes={} with etcd: name the job with --rdzv-id=ID, the same on every node "
                    "and like no other job there",
                    o.nodes);
  const auto servers = split(s.rdzv_endpoint, ',');
  check<UsageError>(servers.size() <= kMostServers, "--rdzv-endpoint names {} servers; at most {}",
                    servers.size(), kMostServers);
  bool https = false;
  for (const auto server : servers) {
    o.etcd.urls.push_back(url_of(trim(server), s.etcd_protocol));
    https = https || o.etcd.urls.back().starts_with("https");
  }
  const auto& tls = o.etcd.tls;
  check<UsageError>(tls.certificate.empty() == tls.key.empty(),
                    "--rdzv-conf: cert and key go together: give both or neither");
  check<UsageError>(https || (tls.certificate.empty() && tls.authorities.empty()),
                    "--rdzv-conf names certificates, which http does not use: add protocol=https");
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
  check<UsageError>(!o.come_and_go || o.rdzv_backend != "static",
                    "--nnodes={}:{}: nodes that come and go meet at an endpoint: add "
                    "--rdzv-backend=c10d --rdzv-endpoint=HOST:{}",
                    o.least_nodes, o.nodes, kC10dPort);
  if (o.rdzv_backend != "static") {
    if (s.node_rank_given)
      o.warnings.push_back(fmt::format(
          "--node-rank has no effect here: {} numbers nodes as they come", o.rdzv_backend));
    if (s.master_addr_given)
      o.warnings.push_back(fmt::format(
          "--master-addr has no effect here: {} takes the first node's address", o.rdzv_backend));
  }
  if (o.rdzv_backend == "etcd") return settle_etcd(s);
  const HostPort endpoint = parse_endpoint(s.rdzv_endpoint);
  if (o.rdzv_backend == "c10d") {
    check<UsageError>(!endpoint.host.empty(),
                      "--nnodes={} with c10d: name the host where the nodes meet, as in "
                      "--rdzv-endpoint=HOST:{}",
                      o.nodes, kC10dPort);
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

}  // namespace

std::string rdzv_backend_of(const std::string& origin, const std::string& value) {
  if (value.empty()) return "static";
  if (value == "static" || value == "c10d") return value;
  // torchrun's etcd is that of version 2; the server is the same, and so is what its users want.
  if (value == "etcd" || value == "etcd-v3") return "etcd";
  check<UsageError>(value != "etcd-v2",
                    "{}={}: only version 3 of etcd's interface is spoken, which every etcd since "
                    "3.4 has: write etcd",
                    origin, value);
  fail<UsageError>(
      "{}={}: not supported; c10d needs no server beside the launchers, etcd meets in one, and "
      "static (the default) needs no more than --master-addr and --node-rank",
      origin, value);
}

void settle_rendezvous(S& s) {
  auto& o = s.options;
  if (o.come_and_go && o.least_nodes == o.nodes && o.rdzv_backend == "static") {
    o.come_and_go = false;
    o.warnings.push_back(fmt::format(
        "--nnodes={0}:{0} is --nnodes={0} here: a node that is lost is waited for where "
        "nodes meet by --rdzv-backend=c10d or etcd",
        o.nodes));
  }
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
  const char* const not_needed =
      "--rdzv-endpoint is not needed: one node meets inside this launcher";
  if (o.rdzv_backend == "etcd") {
    o.notes.push_back(not_needed);
    return;
  }
  const HostPort endpoint = parse_endpoint(s.rdzv_endpoint);
  check<UsageError>(is_this_host(endpoint.host),
                    "--rdzv-endpoint={}: {} is not this host, and --nnodes is 1", s.rdzv_endpoint,
                    endpoint.host);
  if (o.rdzv_backend == "static") {
    o.master_addr = endpoint.host.empty() ? "127.0.0.1" : endpoint.host;
    o.master_port = endpoint.port;
  } else {
    o.notes.push_back(not_needed);
  }
}

}  // namespace trireme::launch
