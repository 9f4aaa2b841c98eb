// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/rpc/remote.h"
#include "trireme/rpc/server/node.h"

// The calls that a server of parameters answers. Their names are none that TRIREME_REMOTE can make.
namespace trireme::rpc::server {

#define TRIREME_SERVER_METHOD(type, name, function)                                             \
  struct type {                                                                                 \
    static constexpr const char* kName = "trireme.server." name;                                \
    static constexpr auto kFunction = function;                                                 \
    static_assert(::trireme::rpc::detail::check_function<std::decay_t<decltype(kFunction)>>()); \
  }

TRIREME_SERVER_METHOD(JoinCall, "join", &Node::join);
TRIREME_SERVER_METHOD(AttendCall, "attend", &Node::attend);
TRIREME_SERVER_METHOD(LeaveCall, "leave", &Node::leave);
TRIREME_SERVER_METHOD(DecideCall, "decide", &Node::decide);
TRIREME_SERVER_METHOD(BeginCall, "begin", &Node::begin);
TRIREME_SERVER_METHOD(PushCall, "push", &Node::push);
TRIREME_SERVER_METHOD(PullCall, "pull", &Node::pull);
TRIREME_SERVER_METHOD(LookUpCall, "look_up", &Node::look_up);
TRIREME_SERVER_METHOD(WaitedForCall, "waited_for", &Node::waited_for);

#undef TRIREME_SERVER_METHOD

}  // namespace trireme::rpc::server
