// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/call.h"

#include <utility>

namespace trireme::rpc {

Call::~Call() = default;
void Call::waits(uint64_t) const {}
void Call::goes_on() const {}

namespace detail {
namespace {

// Of the thread, and nobody's to set but CallScope's: that nested calls inherit their deadline
// without being told is worth it.
std::shared_ptr<const Call>& slot() {
  thread_local std::shared_ptr<const Call> call;
  return call;
}

}  // namespace

const std::shared_ptr<const Call>& current_call() { return slot(); }

CallScope::CallScope(std::shared_ptr<const Call> call)
    : before_(std::exchange(slot(), std::move(call))) {}

CallScope::~CallScope() { slot() = std::move(before_); }

}  // namespace detail
}  // namespace trireme::rpc
