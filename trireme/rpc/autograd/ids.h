// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <compare>
#include <cstdint>
#include <string>

#include "trireme/base/encoding.h"

namespace trireme::rpc::autograd {

/// A context, in all of the job.
struct ContextId {
  int64_t member = 0;   // the worker that began it
  uint64_t number = 0;  // its contexts, counted from 1
  auto operator<=>(const ContextId&) const = default;
  TRIREME_FIELDS(member, number)
};

inline std::string shown(const ContextId& id) { return fmt::format("{}.{}", id.member, id.number); }

/// Tensors that went from one worker to another within a context: of a call, the arguments or the
/// answer. Both ends have a node for them.
struct Pair {
  int64_t member = 0;    // the worker that called
  uint64_t message = 0;  // its calls within contexts, counted
  bool answer = false;
  auto operator<=>(const Pair&) const = default;
  TRIREME_FIELDS(member, message, answer)
};

}  // namespace trireme::rpc::autograd
