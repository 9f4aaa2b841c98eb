// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/channel/channel.h"
#include "trireme/channel/tcp/wire.h"

namespace trireme::channel::tcp {

/// A message that leaves in chunks. Its part that is laid out next: only who lays out moves it.
struct LongMessage {
  Message message;
  uint64_t left = 0;    // bytes that are in no parcel yet
  size_t part = 0;      // 0: its bytes, then its bodies
  uint64_t offset = 0;  // in that part
};

/// What is laid out and written in one go.
struct Parcel {
  std::string greeting;  // "": none
  std::optional<uint64_t> taken;
  std::vector<Message> messages;    // each of at most kChunk bytes
  std::shared_ptr<LongMessage> of;  // a chunk of it follows
  uint8_t place = 0;
  bool begins = false;  // its head goes before
  uint64_t chunk = 0;   // bytes
  std::optional<std::string> closing;
  uint64_t bytes = 0;            // of messages: posted, and with this parcel they have left
  std::vector<Message> dropped;  // memory that is no longer needed
  std::vector<std::shared_ptr<LongMessage>> dropped_long;
};

/// What is to be sent over one channel, and in which order: what the other end waits for in order
/// to go on, then small messages, then a chunk of one of the long ones in turn, as far as the
/// other end has taken earlier chunks. So a small message finds before it what is being written,
/// and at most kMostOnTheWay bytes of chunks. No socket, no lock.
class TRIREME_API Outbox {
 public:
  void greet(std::string greeting) { greeting_ = std::move(greeting); }
  void post(Message message);
  /// Tells the other end that we have taken so many bytes of its chunks.
  void tell_taken(uint64_t bytes) { taken_ = bytes; }
  /// The other end says the same of ours. Corrupt: it cannot have.
  void peer_took(uint64_t bytes);
  /// Nothing but this goes out any more.
  void close(std::string why);

  /// False: there is nothing to send now.
  bool next(Parcel* parcel);
  /// It is not counted as unsent any more.
  void left(const Parcel& parcel) { unsent_ -= std::min(unsent_, parcel.bytes); }
  uint64_t unsent() const { return unsent_; }

 private:
  void next_chunk(Parcel* parcel);

  std::string greeting_;
  std::optional<uint64_t> taken_;
  std::optional<std::string> closing_;
  bool closed_ = false;
  std::deque<Message> small_;
  std::deque<Message> long_;  // that have no place yet
  std::array<std::shared_ptr<LongMessage>, kPlaces> places_;
  uint8_t turn_ = 0;
  uint64_t chunks_sent_ = 0, chunks_taken_ = 0;  // bytes
  uint64_t unsent_ = 0;
};

}  // namespace trireme::channel::tcp
