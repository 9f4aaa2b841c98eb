// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "trireme/base/check.h"
#include "trireme/channel/local/letter.h"
#include "trireme/channel/local/local_channel.h"
#include "trireme/net/printable.h"

// What comes in, on the serving thread.
namespace trireme::channel::local {
namespace {

/// The peer may write it meanwhile: it is copied, and then read.
std::string words_of(const Lane& lane) {
  const std::string copy(lane.why, kWhyBytes);
  return net::printable(copy.substr(0, copy.find('\0')));
}

}  // namespace

bool LocalChannel::ready() const {
  if (finished_) return false;
  if (over_.load(std::memory_order_acquire) || gone_ || in_.any() ||
      lane_in()->closed.load(std::memory_order_acquire) != 0)
    return true;
  return queued_.load(std::memory_order_acquire) > 0 &&
         !(blocked_ && lane_out()->taken.load(std::memory_order_acquire) == blocked_at_);
}

int LocalChannel::take(int most) {
  if (finished_) return 0;
  const bool says_bye = lane_in()->closed.load(std::memory_order_acquire) != 0;
  const bool last = says_bye || gone_;  // what it sent before is there
  int calls = 0;
  for (uint64_t bytes = 0; calls < most && bytes < kChunk;) {
    if (over_.load(std::memory_order_acquire)) break;
    std::optional<Message> message;
    try {
      const std::optional<RingReader::Record> record = in_.next();
      if (!record) {
        if (last && says_bye)
          end(fmt::format("{} closed the channel: {}", who(), words_of(*lane_in())), "");
        else if (last)
          end(fmt::format("{} is gone", who()), "");
        break;
      }
      MessageReader& reader = record->kind == kShort ? short_in_ : long_in_;
      message = reader.feed(record->data, record->bytes, resolve_);
      in_.taken();
      bytes += record->bytes, taken_ += record->bytes;
    } catch (const Error& e) {
      end(fmt::format("what {} sent could not be taken: {}", who(), e.what()), e.what());
      break;
    }
    if (taken_ >= kRingBytes / 4) wake_sender();
    if (!message) continue;
    ++calls;
    receiver_->received(std::move(*message));
  }
  if (taken_ > 0) wake_sender();
  if (over_.load(std::memory_order_acquire)) calls += finish();
  return calls;
}

void LocalChannel::wake_sender() {
  taken_ = 0;
  ::trireme::local::full_fence();  // our `taken` first, then their `sender_waits`
  std::atomic<uint32_t>& waits = lane_in()->sender_waits;
  if (waits.load(std::memory_order_relaxed) && waits.exchange(0, std::memory_order_relaxed))
    peer_bell_.ring();
}

std::shared_ptr<const void> LocalChannel::lent_by_peer(const LentPlace& place, uint64_t bytes) {
  if (!windows_.has(place.window)) read_letters();  // sent before the message that lends it
  return windows_.lend(place, bytes);
}

void LocalChannel::read_letters() {
  constexpr int kMostAtOnce = 1024;  // windows come one by one
  for (int i = 0; i < kMostAtOnce; ++i) {
    ReceivedLetter got = receive_letter(socket_.get());
    if (got.state == ReceivedLetter::nothing) return;
    if (got.state == ReceivedLetter::closed) {
      gone_ = true;
      return;
    }
    heard(got);
  }
}

void LocalChannel::heard(const ReceivedLetter& got) {
  check<ResourceError>(!got.lost_fd,
                       "this process may open no more files: raise 'ulimit -n' for memory that "
                       "workers share");
  check<Corrupt>(got.is_of_windows(), "it said what nobody says on an open channel");
  const Letter& letter = got.content;
  if (letter.kind == LetterKind::dropped)
    windows_.drop(letter.number);
  else
    windows_.add(letter.number, map_shared(got.fd, letter.bytes, "it"));
}

void LocalChannel::look(bool socket_readable, bool gone) {
  if (finished_ || over_.load(std::memory_order_acquire)) return;
  try {
    if (socket_readable) read_letters();
  } catch (const Error& e) {
    end(fmt::format("what {} sent could not be taken: {}", who(), e.what()), e.what());
  }
  if (gone) gone_ = true;
}

}  // namespace trireme::channel::local
