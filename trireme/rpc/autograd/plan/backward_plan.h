// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "trireme/base/export.h"

// In what order the graphs of several workers go through one backward. Pure: numbers in, lists out.
//
// Each worker has a piece of the graph. Gradients enter it at entries and leave it as messages,
// each of which is the entry of one worker. What lies behind entries whose pieces share no node is
// a pass of its own: one execute() of the engine. A pass that may get a gradient only once it has
// begun (because it sends the message that leads to it) begins at once, and waits within. Every
// other pass begins once all of its gradients have come, and holds no thread before.
//
// Nothing waits in a circle: all messages have one order, in which each comes after those it
// depends on, and a pass that waits for one has sent all of its own that come before it. So the
// first message of this order that is not there yet is always on its way.
namespace trireme::rpc::backward_plan {

/// The losses of the worker that called backward(), which are there from the beginning.
inline constexpr int kLosses = -1;

struct Entry {
  int worker = 0;
  int message = kLosses;     // from 0 on; each is one entry's
  std::vector<int> exits;    // messages that leave behind it
  std::vector<int> touches;  // entries of this worker (their places in the list) whose pieces share
                             // nodes with this one's
};

struct Pass {
  int worker = 0;
  std::vector<int> entries;  // their messages, kLosses first, then in the order of all messages
  std::vector<int> exits;    // in that order
  bool waits = false;        // within; else it begins once all entries have come
  /// Where it waits: for each entry, the exits of this pass that it comes after.
  std::vector<std::vector<int>> after;
};

/// `one_pass`: all that a worker does is one pass. Corrupt: a message that no worker gets, or that
/// two get, or that depends on itself.
TRIREME_API std::vector<Pass> make_passes(const std::vector<Entry>& entries, bool one_pass);

}  // namespace trireme::rpc::backward_plan
