// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/transit.h"

#include <utility>

namespace trireme::rpc::detail {
namespace {

// Of the thread, as its current call is (rpc/call.h), and for the same reason.
std::shared_ptr<CallContext>& context_slot() {
  thread_local std::shared_ptr<CallContext> context;
  return context;
}

}  // namespace

Crossing::~Crossing() = default;
Passage::~Passage() = default;
CallTransit::~CallTransit() = default;
CallContext::~CallContext() = default;
LineWatcher::~LineWatcher() = default;
Carrier::~Carrier() = default;

const std::shared_ptr<CallContext>& current_context() { return context_slot(); }

ContextScope::ContextScope(std::shared_ptr<CallContext> context)
    : before_(std::exchange(context_slot(), std::move(context))) {}

ContextScope::~ContextScope() { context_slot() = std::move(before_); }

}  // namespace trireme::rpc::detail
