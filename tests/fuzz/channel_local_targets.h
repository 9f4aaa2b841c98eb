// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "tests/fuzz/python_targets.h"
#include "trireme/channel/local/message_format.h"
#include "trireme/channel/local/ring.h"

// A fuzz target for what a peer writes into the ring of a channel, as those of targets.h.
namespace trireme::fuzz {

/// The bytes are those of the ring, from its beginning.
inline void channel_ring(std::string_view bytes) {
  using namespace trireme::channel;
  static local::Lane* const lane =
      static_cast<local::Lane*>(std::aligned_alloc(4096, sizeof(local::Lane)));
  lane->head = std::min<uint64_t>((bytes.size() + 7) / 8 * 8, local::kRingBytes);
  lane->taken = 0;
  std::memcpy(lane->ring, bytes.data(), std::min<uint64_t>(bytes.size(), local::kRingBytes));
  const auto allocate = [](uint64_t n) {
    if (n > (1 << 20)) throw ResourceError("a test has no more memory");
    return local::plain_memory(n);
  };
  const auto resolve = [](const local::LentPlace&, uint64_t) -> std::shared_ptr<const void> {
    return std::make_shared<int>(0);
  };
  accepted([&] {
    try {
      local::RingReader in(lane);
      local::MessageReader readers[2]{local::MessageReader(allocate),
                                      local::MessageReader(allocate)};
      while (const auto record = in.next()) {
        if (record->data < lane->ring ||
            record->data + record->bytes > lane->ring + local::kRingBytes)
          throw std::logic_error("a record outside of the ring");
        const auto message =
            readers[record->kind == local::kLong].feed(record->data, record->bytes, resolve);
        in.taken();
        if (!message) continue;
        if (message->bytes.size() > kMostBytes || message->bodies.size() > kMostBodies)
          throw std::logic_error("a message beyond the limits");
        for (const Body& body : message->bodies)
          if (body.bytes > kMostBodyBytes || (body.bytes > 0 && !body.data))
            throw std::logic_error("a body without memory");
      }
    } catch (const ResourceError&) {
    }
  });
}

}  // namespace trireme::fuzz
