// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/channel/channel.h"

namespace trireme::rpc::detail {

/// A worker's channel to itself: what is sent is received by the same end, on the thread that sends
/// or on another that is sending. Bodies are copied, as on every road.
std::shared_ptr<channel::Channel> loopback(const channel::Peer& self,
                                           std::shared_ptr<channel::Receiver> receiver);

}  // namespace trireme::rpc::detail
