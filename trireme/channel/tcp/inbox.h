// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/channel/channel.h"
#include "trireme/channel/tcp/memory.h"
#include "trireme/channel/tcp/wire.h"
#include "trireme/net/frame.h"
#include "trireme/net/seal.h"

namespace trireme::channel::tcp {

/// A message of which not all has come.
class PartialMessage {
 public:
  explicit PartialMessage(const MessageSizes& sizes);
  uint64_t left() const { return left_; }
  /// Where the next bytes belong; at most `most`, at least one while some are left.
  std::span<char> room(uint64_t most);
  void came(uint64_t bytes);
  Message take();

 private:
  void skip_whole();

  uint64_t left_;
  uint64_t bytes_, bytes_come_ = 0;
  Message message_;
  std::vector<uint64_t> sizes_;
  std::optional<GrowingMemory> body_;  // the one that comes: the next after message_.bodies
};

/// Bytes of one channel as they come → what they say. Bodies are received where they stay: room()
/// leads there as soon as a chunk's header is believed. No socket. One thread at a time. What it
/// throws (Corrupt, Mismatch, ResourceError) ends the channel.
class TRIREME_API Inbox {
 public:
  explicit Inbox(std::optional<net::Seal> seal) : seal_(std::move(seal)) {}

  /// Where the next bytes from the socket go; asked for when next() has nothing more to tell.
  struct Room {
    iovec parts[2];
    int count = 0;
    size_t bytes() const { return parts[0].iov_len + (count > 1 ? parts[1].iov_len : 0); }
  };
  Room room();
  /// So many bytes are in the room that was asked for last.
  void came(size_t bytes);

  /// What a frame said; one of these.
  struct News {
    std::optional<Message> message;
    std::optional<uint64_t> we_took;  // bytes of chunks so far: to be told to the other end
    std::optional<uint64_t> they_took;
    std::optional<std::string> closing;
  };
  /// nullopt: more bytes are needed.
  std::optional<News> next();

 private:
  struct Buffer {
    std::unique_ptr<char[]> data;
    size_t capacity = 0, begin = 0, end = 0;
    size_t size() const { return end - begin; }
    std::string_view bytes() const { return {data.get() + begin, size()}; }
    void make_room(size_t bytes);  // behind `end`
    void use_up(size_t bytes);
  };

  std::optional<News> on_frame(uint16_t type, std::string_view payload);
  void begin_chunk(uint32_t length, uint8_t place);
  void took_of_chunk(std::span<const char> bytes);
  News end_chunk();

  std::optional<net::Seal> seal_;
  Buffer buffer_;
  net::FrameHeader header_;      // of the frame that comes
  bool header_checked_ = false;  // it is there
  bool in_chunk_ = false;
  uint64_t chunk_left_ = 0;
  uint8_t chunk_place_ = 0;
  uint64_t taken_ = 0;
  std::array<std::optional<PartialMessage>, kPlaces> places_;
  std::optional<Message> complete_;  // to be told next
};

}  // namespace trireme::channel::tcp
