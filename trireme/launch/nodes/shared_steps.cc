// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/shared_steps.h"

#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/base/encoding.h"
#include "trireme/base/log.h"
#include "trireme/comm/local/host/memory_room.h"
#include "trireme/launch/nodes/fetch_step.h"
#include "trireme/launch/nodes/hear_all.h"
#include "trireme/launch/nodes/patience.h"
#include "trireme/net/address.h"
#include "trireme/rendezvous/job_ports.h"

namespace trireme::launch {

PartServer* SharedSteps::server() {
  if (server_) return &*server_;
  const auto door = nodes_.door();
  if (!door || no_server_) return nullptr;
  try {
    server_.emplace(detail::listen_at_first_free(door->host, {0, 0}), door->credentials);
    return &*server_;
  } catch (const Error& error) {
    no_server_ = true;
    log_warn("the other nodes cannot get steps from this node's memory: {}", error.what());
    return nullptr;
  }
}

void SharedSteps::take(std::vector<HandedSnapshot> handed, const GenerationFence& fence) {
  memory_.take(std::move(handed), fence);
  if (copies_) memory_.take_copies(copies_->take());
  copies_.reset();
}

void SharedSteps::see(const SnapshotHolder& holder) {
  memory_.see(holder);
  if (copies_) copies_->see(holder);
  if (server_ && memory_.held() == 0) server_->offer("steps", {});
}

void SharedSteps::copy_to_neighbours() {
  const std::vector<int>& workers = nodes_.workers_of_nodes();
  if (workers.size() < 2) {
    log_warn(
        "checkpoint.neighbour: no other node is there to have copies of what ranks have in memory");
    return;
  }
  PartServer* const server = this->server();
  std::unique_ptr<Store> table = nodes_.own_table();
  if (server && table) try {
      copies_.emplace(*server, nodes_.door()->host, nodes_.door()->credentials, std::move(table),
                      NeighbourCopies::Place{nodes_.node_rank(), workers});
    } catch (const std::exception& error) {
      log_warn("no copies on the next nodes of what ranks have in memory: {}", error.what());
    }
}

HostParts SharedSteps::own_parts() {
  HostParts ours = memory_.report();
  ours.room = local::memory_room().bytes;
  if (ours.parts.empty()) return ours;
  PartServer* const server = this->server();
  if (!server) return ours;
  std::vector<PartServer::Offer> offers;
  for (const SpreadPart& part : ours.parts)
    offers.push_back({part.save, part.rank, memory_.part(part.save, part.rank)});
  server->offer("steps", offers);
  ours.address = net::Address{nodes_.door()->host, server->port()}.text();
  return ours;
}

std::string SharedSteps::agree(const Nodes::Begun& begun,
                               const std::function<bool()>& asked_to_stop) {
  copies_.reset();
  std::string text;
  try {
    text = hand_on(begun, asked_to_stop);
  } catch (const std::exception& error) {
    if (memory_.held() > 0)
      log_warn("the step in the memory of the workers before is not taken: {}", error.what());
    memory_.hand_on_nothing(begun.attempt);
  }
  if (neighbour_) copy_to_neighbours();
  return text;
}

std::string SharedSteps::hand_on(const Nodes::Begun& begun,
                                 const std::function<bool()>& asked_to_stop) {
  const auto ends = [&] { return nodes_.stopped().has_value() || asked_to_stop(); };
  const std::unique_ptr<Store> table = nodes_.own_table();
  check<PeerLost>(table != nullptr, "the job's store does not answer");
  const int count = static_cast<int>(nodes_.workers_of_nodes().size());
  HearAll all(*table, "held", nodes_.node_rank(), count);
  const auto said = all.round(encode(own_parts()), Deadline::after(patience::kStepsAreTold), ends);
  if (!said && ends()) return "";  // what is held stays for the next attempt
  check<Timeout>(said.has_value(), "not all nodes said what they hold");
  std::vector<HostParts> hosts;
  for (const std::string& text : *said) hosts.push_back(decode<HostParts>(text));
  const SpreadChoice choice = choose_spread_step(hosts);
  if (!choice.step) {
    if (!choice.why_not.empty() && nodes_.node_rank() == 0)
      log_warn("the step in the memory of the workers before is not taken: {}", choice.why_not);
    memory_.hand_on_nothing(begun.attempt);
    return "";
  }
  auto fetched = fetch_step(*choice.step, hosts, static_cast<size_t>(nodes_.node_rank()),
                            nodes_.door()->credentials, ends);
  const std::string text = memory_.hand_on(*choice.step, std::move(fetched), begun.attempt);
  if (nodes_.node_rank() == 0) memory_.write_behind({begun.claims, begun.claim});
  return text;
}

}  // namespace trireme::launch
