// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/trace.h"

#include <atomic>

namespace trireme {
namespace {
std::atomic<TraceSink*> current{nullptr};
thread_local TraceSink* of_thread = nullptr;
}  // namespace

void set_trace_sink(TraceSink* sink) { current.store(sink, std::memory_order_release); }
void set_thread_trace_sink(TraceSink* sink) { of_thread = sink; }
TraceSink* trace_sink() { return of_thread ? of_thread : current.load(std::memory_order_acquire); }

}  // namespace trireme
