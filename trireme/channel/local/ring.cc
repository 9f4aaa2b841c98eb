// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/ring.h"

#include <bit>

#include "trireme/base/check.h"

namespace trireme::channel::local {
namespace {

std::atomic_ref<uint64_t> head_at(Lane* lane, uint64_t at) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(lane->ring + at % kRingBytes));
}

}  // namespace

uint64_t RingWriter::taken() {
  const uint64_t taken = lane_->taken.load(std::memory_order_acquire);
  check<Corrupt>(taken >= taken_ && taken <= at_, "it has taken {} bytes of {}", taken, at_);
  return taken_ = taken;
}

unsigned char* RingWriter::room(uint64_t bytes) {
  const uint64_t whole = sizeof(RecordHead) + round8(bytes),
                 before_end = kRingBytes - at_ % kRingBytes;
  const uint64_t skipped = before_end < whole ? before_end : 0;
  if (at_ - taken_ + skipped + whole > kRingBytes && at_ - taken() + skipped + whole > kRingBytes)
    return nullptr;
  if (skipped)
    head_at(lane_, at_)
        .store(std::bit_cast<uint64_t>(
                   RecordHead{static_cast<uint32_t>(skipped - sizeof(RecordHead)), kSkip}),
               std::memory_order_relaxed);
  next_ = at_ + skipped;
  return lane_->ring + next_ % kRingBytes + sizeof(RecordHead);
}

void RingWriter::publish(RecordKind kind, uint64_t bytes) {
  head_at(lane_, next_)
      .store(std::bit_cast<uint64_t>(RecordHead{static_cast<uint32_t>(bytes), kind}),
             std::memory_order_relaxed);
  at_ = next_ + sizeof(RecordHead) + round8(bytes);
  lane_->head.store(at_, std::memory_order_release);
}

std::optional<RingReader::Record> RingReader::next() {
  for (bool skipped = false;; skipped = true) {
    if (at_ == seen_) {
      const uint64_t seen = lane_->head.load(std::memory_order_acquire);
      check<Corrupt>(seen >= at_ && seen - at_ <= kRingBytes && seen % 8 == 0,
                     "its ring holds {} bytes of {}", seen - at_, kRingBytes);
      if (seen == at_) return std::nullopt;
      seen_ = seen;
    }
    const auto head =
        std::bit_cast<RecordHead>(head_at(lane_, at_).load(std::memory_order_relaxed));
    const uint64_t whole = sizeof(RecordHead) + round8(uint64_t{head.bytes});
    const uint64_t before_end = kRingBytes - at_ % kRingBytes;
    check<Corrupt>(whole <= before_end && whole <= seen_ - at_, "a record of {} bytes where {} are",
                   head.bytes, seen_ - at_);
    if (head.kind == kSkip) {
      check<Corrupt>(whole == before_end && !skipped, "a gap in the middle of its ring");
      at_ += whole;
      continue;
    }
    check<Corrupt>(
        (head.kind == kShort || head.kind == kLong) && head.bytes > 0 && head.bytes <= kRecordMost,
        "a record of kind {} and {} bytes", head.kind, head.bytes);
    next_ = at_ + whole;
    return Record{static_cast<RecordKind>(head.kind),
                  lane_->ring + at_ % kRingBytes + sizeof(RecordHead), head.bytes};
  }
}

void RingReader::taken() {
  at_ = next_;
  lane_->taken.store(at_, std::memory_order_release);
}

}  // namespace trireme::channel::local
