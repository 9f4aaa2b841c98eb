// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/server/parameter_client.h"

#include "trireme/rpc/server/membership.h"

namespace trireme::rpc {

ParameterClient::ParameterClient(Worker me, NamedTensors parameters, ClientOptions options)
    : membership_(std::make_unique<server::Membership>(std::move(me), std::move(parameters),
                                                       std::move(options))) {}
ParameterClient::~ParameterClient() = default;
ParameterClient::ParameterClient(ParameterClient&&) noexcept = default;

int64_t ParameterClient::steps() const { return membership_->steps(); }
void ParameterClient::step(double lr) { membership_->step(lr); }
void ParameterClient::pull() { membership_->pull(); }
void ParameterClient::leave() { membership_->leave(); }

}  // namespace trireme::rpc
