// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/parameter_server.h"

#include "trireme/rpc/server/methods.h"

namespace trireme::rpc {

ParameterServer::ParameterServer(ServerOptions options)
    : node_(std::make_shared<server::Node>(std::move(options))) {}
ParameterServer::~ParameterServer() = default;
ParameterServer::ParameterServer(ParameterServer&&) noexcept = default;

Offer ParameterServer::offer() const {
  return rpc::offer<server::JoinCall, server::AttendCall, server::LeaveCall, server::DecideCall,
                    server::BeginCall, server::PushCall, server::PullCall, server::LookUpCall,
                    server::WaitedForCall>(node_);
}

int64_t ParameterServer::steps() const { return node_->steps(); }
bool ParameterServer::wait(Deadline deadline) const { return node_->wait(deadline); }

}  // namespace trireme::rpc
