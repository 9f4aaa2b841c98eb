// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/channel/channel.h"

// A message as bytes, little-endian:
//
//   u32 bytes, u32 bodies
//   for each body: u64 size × 2 (+ 1: lent); if it is lent, u32 window, u32 number, u64 offset
//   the bytes
//   the bodies that are not lent, one behind the other
//
// A lent body lies in a window of the sender's, and stays there until the receiver returns its
// number. Pure but for the memory that a message is made of.
namespace trireme::channel::local {

struct LentPlace {  // as it is written
  uint32_t window = 0;
  uint32_t number = 0;  // of the loan, below kMostLent
  uint64_t offset = 0;
};
static_assert(sizeof(LentPlace) == 16);

/// Plain memory for a body, aligned to 64 bytes. ResourceError.
std::shared_ptr<void> plain_memory(uint64_t bytes);

/// Gives out the bytes of one message, a part at a time.
class MessageWriter {
 public:
  /// `lent`: where body i lies; nothing: its bytes travel with the message. The message stays where
  /// it is until all has been written.
  MessageWriter(const Message& message, const std::vector<std::optional<LentPlace>>& lent);
  MessageWriter(const MessageWriter&) = delete;
  uint64_t left() const { return left_; }
  /// `n` is at most left().
  void write(unsigned char* to, uint64_t n);

 private:
  bool next_part();

  const Message* message_;
  std::vector<bool> lent_;
  std::string front_;
  const unsigned char* part_ = nullptr;
  uint64_t part_left_ = 0;
  size_t next_ = 0;  // 0: the message's bytes; i + 1: body i
  uint64_t left_ = 0;
};

/// What such a message has at all, and all of it at once.
uint64_t written_bytes(const Message& message, const std::vector<std::optional<LentPlace>>& lent);
void write_message(unsigned char* to, const Message& message,
                   const std::vector<std::optional<LentPlace>>& lent);

/// Takes messages from bytes that another process may change while they are read: each is read
/// once. A body's memory is touched as its bytes come: announcing a large one costs nothing.
class MessageReader {
 public:
  /// A body that was lent; throws Corrupt if it does not lie in a window of the sender's.
  using Resolve = std::function<std::shared_ptr<const void>(const LentPlace&, uint64_t bytes)>;
  /// Memory for a body that comes with the message. ResourceError.
  using Allocate = std::shared_ptr<void> (*)(uint64_t bytes);

  explicit MessageReader(Allocate allocate = plain_memory) : allocate_(allocate) {}

  /// The message, if it ends with these bytes. Corrupt: they are none, they go on behind its end,
  /// or they say more than channel.h allows. ResourceError: no memory for a body.
  std::optional<Message> feed(const unsigned char* data, uint64_t n, const Resolve& resolve);
  bool in_the_middle() const { return stage_ != Stage::head || filled_ > 0; }

 private:
  enum class Stage : uint8_t { head, size, place, bytes, bodies };
  bool fill(void* to, uint64_t whole);
  void begin_bodies();

  Allocate allocate_;
  Stage stage_ = Stage::head;
  const unsigned char* data_ = nullptr;
  uint64_t n_ = 0, filled_ = 0;
  unsigned char word_[16] = {};
  uint64_t due_ = 0;  // bodies in the table
  Message message_;
  std::vector<std::pair<size_t, LentPlace>> lent_;
  std::vector<bool> is_lent_;
  size_t next_ = 0;
  std::shared_ptr<void> memory_;  // of body next_
};

/// Bytes in front of a message's own, with `n` bodies of which none is lent.
constexpr uint64_t front_bytes(uint64_t n) { return 8 + 8 * n; }

}  // namespace trireme::channel::local
