// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "trireme/channel/local/lane.h"

// Records in the ring of a lane, and out of it. Each of the two belongs to one thread at a time.
namespace trireme::channel::local {

class RingWriter {
 public:
  explicit RingWriter(Lane* lane) : lane_(lane) {}
  /// Where to write the next record of so many bytes (at most kRecordMost); null: there is no room
  /// for it yet. Corrupt: the receiver says that it took what was never there.
  unsigned char* room(uint64_t bytes);
  /// Shows the receiver the record that was written to what room() returned last.
  void publish(RecordKind kind, uint64_t bytes);
  /// Bytes put in since the beginning; those that the receiver has taken come up to this, too.
  uint64_t head() const { return at_; }
  /// Corrupt as above.
  uint64_t taken();

 private:
  Lane* lane_;
  uint64_t at_ = 0;     // as published
  uint64_t next_ = 0;   // where the record lies that room() gave: behind a skip, it may be
  uint64_t taken_ = 0;  // as last seen
};

class RingReader {
 public:
  explicit RingReader(Lane* lane) : lane_(lane) {}
  bool any() const { return lane_->head.load(std::memory_order_acquire) != at_; }

  struct Record {
    RecordKind kind;
    const unsigned char* data;  // the sender may change it at any time
    uint64_t bytes;
  };
  /// The next record, which stays where it is until taken(). Corrupt: what is there is none.
  std::optional<Record> next();
  void taken();

 private:
  Lane* lane_;
  uint64_t at_ = 0;
  uint64_t next_ = 0;  // behind the record that next() gave
  uint64_t seen_ = 0;  // of the sender's head
};

}  // namespace trireme::channel::local
