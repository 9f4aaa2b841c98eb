// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/meet/meet.h"

#include <memory>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/channel/local/hub.h"
#include "trireme/channel/tcp/hub.h"
#include "trireme/net/route.h"
#include "trireme/rendezvous/admission.h"
#include "trireme/rendezvous/job_table.h"

namespace trireme::rpc::detail {
namespace {

/// This host's, as workers of others reach it: on the way to the job's store or to rank 0, of which
/// one may be here.
std::string own_address(const RankEnv& job, const std::string& table) {
  std::vector<std::string> others;
  // "tcp://10.0.0.1:29501 under attempt/0/"
  if (const auto at = table.substr(0, table.find(' ')); at.starts_with("tcp://"))
    others.push_back(net::Endpoint::parse(at).address.host);
  if (!job.master_addr.empty()) others.push_back(job.master_addr);
  for (const std::string& host : others) {
    if (net::is_loopback(host)) continue;
    if (const auto route = net::route_to({host, 1}); !route.from.empty()) return route.from;
  }
  return "127.0.0.1";  // the others are told the same: hosts of one machine, in tests
}

Road local_road() {
  return {"local", [](const channel::Peer& self, channel::Accept accept) {
            return std::shared_ptr<channel::Hub>(
                channel::local_hub({.self = self, .accept = std::move(accept)}));
          }};
}

Road tcp_road(net::Credentials credentials, std::string host) {
  return {"tcp", [credentials = std::move(credentials), host = std::move(host)](
                     const channel::Peer& self, channel::Accept accept) {
            channel::TcpOptions options;
            options.self = self;
            options.credentials = credentials;
            options.at = net::Endpoint::tcp({host, 0});
            options.accept = std::move(accept);
            return std::shared_ptr<channel::Hub>(channel::tcp_hub(std::move(options)));
          }};
}

std::string text_of(const net::Getenv& env, const char* name) { return env(name).value_or(""); }

}  // namespace

std::string name_of_process(const net::Getenv& env) {
  for (const auto& [role, rank] :
       {std::pair{"TRIREME_ROLE", "TRIREME_ROLE_RANK"}, {"ROLE_NAME", "ROLE_RANK"}})
    if (!text_of(env, role).empty() && !text_of(env, rank).empty())
      return text_of(env, role) + text_of(env, rank);
  return "";
}

std::vector<Road> roads_of_job(const RankEnv& job, const std::string& table,
                               const net::Getenv& env) {
  std::vector<Road> roads{local_road()};
  if (job.single_host()) return roads;
  // Not the store's own id: what is sealed there means nothing here.
  RankEnv apart = job;
  apart.job_id += "#rpc";
  roads.push_back(tcp_road(
      trireme::detail::tcp_credentials(job, trireme::detail::meeting_of(apart), env, false),
      own_address(job, table)));
  return roads;
}

Met meet(Options options, const net::Getenv& env) {
  Met met;
  if (options.name.empty()) options.name = name_of_process(env);
  check<UsageError>(!options.name.empty(),
                    "rpc::init: this worker has no name. Give Options::name, or start the program "
                    "with 'trireme run --role NAME=COUNT'");
  if (!options.store || options.roads.empty()) {
    const RankEnv job = read_rank_env(env);
    if (!options.store) {
      options.store =
          open_job_table(job,
                         options.deadline == Duration::max() ? Deadline::never()
                                                             : Deadline::after(options.deadline),
                         env);
      if (options.generation == 0) options.generation = static_cast<uint64_t>(job.attempt);
      if (options.world < 0) options.world = job.source == "none" ? 0 : job.world_size;
      met.process_rank = options.rank < 0 && job.source != "none";
      if (met.process_rank) options.rank = job.rank;
    }
    if (options.roads.empty()) options.roads = roads_of_job(job, options.store->describe(), env);
  }
  met.options = std::move(options);
  return met;
}

}  // namespace trireme::rpc::detail
