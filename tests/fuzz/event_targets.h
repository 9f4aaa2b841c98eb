// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "tests/fuzz/python_targets.h"
#include "trireme/base/events/event_reader.h"

// A fuzz target for the memory that a worker shows its launcher, as those of targets.h.
namespace trireme::fuzz {

inline void event_ring(std::string_view bytes) {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  // Of exactly this size, so that a read beyond it is seen.
  void* p = nullptr;
  if (::posix_memalign(&p, 64, bytes.size() + 1) != 0) return;
  const std::unique_ptr<void, Free> memory(p);
  std::memcpy(p, bytes.data(), bytes.size());
  if (bytes.size() < sizeof(EventHead)) return;
  accepted([&] {
    EventReader reader(p, bytes.size());
    for (int look = 0; look < 2; ++look) {
      const auto seen = reader.take();
      if (seen.size() > kMostEvents) throw std::logic_error("more events than there is room for");
      if (look > 0 && !seen.empty()) throw std::logic_error("an event was read twice");
    }
    for (uint32_t lane = 0; lane < reader.lanes() && lane < 8; ++lane)
      if (reader.waits_in(lane).size() > kWaitBytes)
        throw std::logic_error("a text beyond its lane");
  });
}

}  // namespace trireme::fuzz
