// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/channel/channel.h"
#include "trireme/net/bytes.h"

// What workers say to each other over TCP, in frames of net/frame.h after a handshake of
// net/auth.h. docs/control_protocol.md is the grammar. Reading throws Corrupt.
namespace trireme::channel::tcp {

inline constexpr uint16_t kChannelVersion = 1;
inline constexpr size_t kMostName = 256;  // bytes of a worker's name

enum class ChannelFrame : uint16_t {
  greeting = 112,  // who speaks; the first of both ends, the client's first
  message = 113,   // a whole one of at most kChunk bytes
  head = 114,      // what a longer one is made of
  chunk = 115,     // its next bytes
  taken = 116,     // how many bytes of chunks have come
  closing = 117,   // the last: why
};

/// Long messages of one direction that may be on their way at once, their chunks in turn. Each has
/// the number of a place.
inline constexpr uint8_t kPlaces = 4;
/// Bytes of chunks that are sent before the other end has said that it took them: what a small
/// message may find before it.
inline constexpr uint64_t kMostOnTheWay = 2 * kChunk;

enum class Verdict : uint8_t {
  welcome = 0,
  other_generation = 1,
  not_wanted = 2,
  other_version = 3
};

struct Greeting {
  uint16_t version = kChannelVersion;  // of another one nothing else is read
  Peer self;
  Verdict verdict = Verdict::welcome;  // on the other end; a client's is welcome
  std::string text;                    // why it is not welcome
};
TRIREME_API std::string encode_greeting(const Greeting& greeting);
TRIREME_API Greeting decode_greeting(std::string_view payload);

/// What a message is made of.
struct MessageSizes {
  uint64_t bytes = 0;
  std::vector<uint64_t> bodies;
  uint64_t total() const;
};
TRIREME_API MessageSizes sizes_of(const Message& message);
/// UsageError: it is more than a message may be, or a body has bytes and no data.
TRIREME_API void check_message(const Message& message);

/// Bytes of the encoded sizes.
inline size_t encoded_bytes(const MessageSizes& sizes) { return 8 + 8 * sizes.bodies.size(); }
TRIREME_API std::string encode_sizes(const MessageSizes& sizes);
/// Within what a message may be made of.
TRIREME_API MessageSizes decode_sizes(net::Reader& in);

}  // namespace trireme::channel::tcp
