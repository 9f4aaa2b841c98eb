// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/trace.h"

#include <atomic>

namespace trireme {
namespace {
std::atomic<TraceSink*> current{nullptr};
}

void set_trace_sink(TraceSink* sink) { current.store(sink, std::memory_order_release); }
TraceSink* trace_sink() { return current.load(std::memory_order_acquire); }

}  // namespace trireme
