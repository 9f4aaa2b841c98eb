// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/tcp/wire.h"

#include "trireme/base/check.h"
#include "trireme/net/frame.h"
#include "trireme/net/printable.h"

namespace trireme::channel::tcp {

std::string encode_greeting(const Greeting& greeting) {
  check<UsageError>(greeting.self.name.size() <= kMostName,
                    "a worker's name of {} bytes; at most {}", greeting.self.name.size(),
                    kMostName);
  return net::Writer()
      .u16(greeting.version)
      .string(greeting.self.name)
      .u64(greeting.self.generation)
      .u8(static_cast<uint8_t>(greeting.verdict))
      .string(net::printable(greeting.text))
      .take();
}

Greeting decode_greeting(std::string_view payload) {
  net::Reader in(payload, "a worker's greeting");
  Greeting out;
  out.version = in.u16();
  if (out.version != kChannelVersion) return out;
  out.self.name = in.string(kMostName);
  out.self.generation = in.u64();
  const uint8_t verdict = in.u8();
  check<Corrupt>(verdict <= static_cast<uint8_t>(Verdict::other_version),
                 "a worker's greeting: verdict {} is none", verdict);
  out.verdict = static_cast<Verdict>(verdict);
  out.text = net::printable(in.string(net::kMaxPayloadBefore));
  in.finish();
  return out;
}

uint64_t MessageSizes::total() const {
  uint64_t sum = bytes;
  for (const uint64_t size : bodies) sum += size;
  return sum;
}

MessageSizes sizes_of(const Message& message) {
  MessageSizes out;
  out.bytes = message.bytes.size();
  out.bodies.reserve(message.bodies.size());
  for (const Body& body : message.bodies) out.bodies.push_back(body.bytes);
  return out;
}

void check_message(const Message& message) {
  check<UsageError>(message.bytes.size() <= kMostBytes,
                    "a message with {} bytes beside its bodies; at most {}", message.bytes.size(),
                    kMostBytes);
  check<UsageError>(message.bodies.size() <= kMostBodies, "a message with {} bodies; at most {}",
                    message.bodies.size(), kMostBodies);
  uint64_t sum = 0;
  for (const Body& body : message.bodies) {
    check<UsageError>(body.bytes <= kMostBodyBytes && (sum += body.bytes) <= kMostBodyBytes,
                      "a message with more than {} bytes in its bodies, which is the most",
                      kMostBodyBytes);
    check<UsageError>(body.bytes == 0 || body.data, "a message with a body of {} bytes and no data",
                      body.bytes);
  }
}

std::string encode_sizes(const MessageSizes& sizes) {
  net::Writer out;
  out.u32(static_cast<uint32_t>(sizes.bytes)).u32(static_cast<uint32_t>(sizes.bodies.size()));
  for (const uint64_t size : sizes.bodies) out.u64(size);
  return out.take();
}

MessageSizes decode_sizes(net::Reader& in) {
  MessageSizes out;
  out.bytes = in.u32();
  check<Corrupt>(out.bytes <= kMostBytes, "a message with {} bytes beside its bodies; at most {}",
                 out.bytes, kMostBytes);
  const uint32_t bodies = in.count(8);
  check<Corrupt>(bodies <= kMostBodies, "a message with {} bodies; at most {}", bodies,
                 kMostBodies);
  out.bodies.reserve(bodies);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < bodies; ++i) {
    const uint64_t size = in.u64();
    check<Corrupt>(size <= kMostBodyBytes && (sum += size) <= kMostBodyBytes,
                   "a message with more than {} bytes in its bodies", kMostBodyBytes);
    out.bodies.push_back(size);
  }
  return out;
}

}  // namespace trireme::channel::tcp
