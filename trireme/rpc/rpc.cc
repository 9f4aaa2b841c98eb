// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/rpc.h"

#include "trireme/rpc/agent/agent.h"
#include "trireme/rpc/object/objects.h"

namespace trireme::rpc {
namespace {

Duration deadline_of(const PeerOptions& options, const detail::Agent& agent) {
  return options.deadline == Duration::min() ? agent.options().deadline : options.deadline;
}

Deadline from_now(Duration deadline) {
  return deadline == Duration::max() ? Deadline::never() : Deadline::after(deadline);
}

}  // namespace

const std::string& Worker::name() const { return agent_->name(); }

Peer Worker::peer(const std::string& name, PeerOptions options) const {
  const Duration deadline = deadline_of(options, *agent_);
  return Peer(agent_->line(name, from_now(deadline)), deadline);
}

Peer Worker::peer(int rank, PeerOptions options) const {
  const Duration deadline = deadline_of(options, *agent_);
  return Peer(agent_->line(rank, from_now(deadline)), deadline);
}

std::vector<std::string> Worker::workers() const { return agent_->workers(); }

const std::shared_ptr<detail::Objects>& detail::Access::objects(const Worker& worker) {
  return worker.agent_->objects();
}

const std::shared_ptr<detail::Carrier>& detail::Access::carrier(const Worker& worker) {
  return worker.agent_->carrier();
}

Duration detail::Access::deadline(const Worker& worker) {
  return worker.agent_->options().deadline;
}

std::vector<MethodMetrics> Worker::metrics() const { return agent_->metrics(); }

int Worker::threads() const { return agent_->threads(); }

void Worker::shutdown(const ShutdownOptions& options) const { agent_->shutdown(options); }

}  // namespace trireme::rpc
