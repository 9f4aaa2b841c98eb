// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/channel/local/local_channel.h"
#include "trireme/comm/local/copy.h"

// What goes out. Who sends a short message writes it into the ring; long ones, and those for which
// there is no room, wait until the serving thread turns to them.
namespace trireme::channel::local {
namespace {

constexpr uint64_t kAll = ~uint64_t{0};

/// Bytes and bodies together. UsageError: more than a message may be made of.
uint64_t checked_bytes(const Message& message) {
  check<UsageError>(message.bytes.size() <= kMostBytes,
                    "a message of {} bytes; at most {} are possible: put what is large in bodies",
                    message.bytes.size(), kMostBytes);
  check<UsageError>(message.bodies.size() <= kMostBodies,
                    "a message with {} bodies; at most {} are possible", message.bodies.size(),
                    kMostBodies);
  uint64_t bytes = message.bytes.size();
  for (size_t i = 0; i < message.bodies.size(); ++i) {
    const Body& body = message.bodies[i];
    check<UsageError>(body.bytes <= kMostBodyBytes, "body {} has {} bytes; at most {} are possible",
                      i, body.bytes, kMostBodyBytes);
    check<UsageError>(body.data || body.bytes == 0, "body {} has {} bytes and no memory", i,
                      body.bytes);
    bytes += body.bytes;
  }
  return bytes;
}

}  // namespace

uint64_t LocalChannel::copied_bytes(const Message& message) const {
  uint64_t bytes = message.bytes.size();
  for (const Body& body : message.bodies)
    if (body.bytes < kLendFrom || !memory_->has(body.data.get(), body.bytes)) bytes += body.bytes;
  return bytes;
}

bool LocalChannel::send(Message message) {
  mark_.check("this channel");
  const uint64_t bytes = checked_bytes(message);
  std::vector<Outgoing> done;  // let go without the lock: bodies may end in code of the program's
  bool queued = false, moved = false;
  try {
    if (!message.bodies.empty()) memory_->collect(*lane_out());
    std::lock_guard lock(out_mutex_);
    if (over_.load(std::memory_order_acquire)) return false;
    const uint64_t before = out_.head();
    if (short_.empty() && put_at_once(message)) {
      moved = true;
    } else {
      const bool is_long = copied_bytes(message) > kChunk;
      (is_long ? long_ : short_).push_back({std::move(message), bytes});
      unsent_ += bytes, ++queued_;
      if (!is_long) flush_short(done);
      queued = is_long || !short_.empty();
      moved = out_.head() != before;
    }
  } catch (const Corrupt& e) {
    end(fmt::format("{} broke the channel: {}", who(), e.what()), e.what());
    return false;
  }
  if (moved) peer_bell_.ring();
  if (queued) own_bell_->ring();
  return true;
}

/// Writes a message that is one record, and of which all large bodies are in a window: if there is
/// room for it.
bool LocalChannel::put_at_once(const Message& message) {
  constexpr size_t kFewBodies = 256;
  const std::vector<Body>& bodies = message.bodies;
  uint64_t whole = front_bytes(bodies.size()) + message.bytes.size(), large = 0;
  for (const Body& body : bodies) {
    if (body.bytes < kLendFrom)
      whole += body.bytes;
    else
      whole += sizeof(LentPlace), large += body.bytes;
  }
  if (whole > kRecordMost || bodies.size() > kFewBodies) return false;
  if (large > 0 && too_far_ahead()) return false;
  unsigned char* to = out_.room(whole);
  if (!to) return false;
  if (bodies.empty())
    places_.clear();
  else if (!memory_->lend_all(bodies, kLendFrom, places_))
    return false;
  write_message(to, message, places_);
  out_.publish(kShort, whole);
  went_ahead(large);
  return true;
}

/// Finds a block for each body that is worth one, and copies those that are not in a window yet:
/// at most `most` bytes. True: all bodies have their place, or travel in the ring.
bool LocalChannel::place(Outgoing& out, uint64_t most) {
  std::vector<Body>& bodies = out.message.bodies;
  out.lent.resize(bodies.size());
  for (; out.next < bodies.size(); ++out.next) {
    const Body& body = bodies[out.next];
    std::optional<LentPlace>& lent = out.lent[out.next];
    if (body.bytes < kLendFrom) continue;
    if (!out.block) {
      if (memory_->has(body.data.get(), body.bytes)) {
        lent = memory_->lend(body.data, body.bytes);
        if (lent) out.lent_bytes += body.bytes;
        continue;
      }
      out.block = memory_->make(body.bytes);
      out.copied = 0;
      if (!out.block) continue;
    }
    const uint64_t n = std::min(most, body.bytes - out.copied);
    ::trireme::local::copy_block(static_cast<unsigned char*>(out.block.get()) + out.copied,
                                 static_cast<const unsigned char*>(body.data.get()) + out.copied, n,
                                 body.bytes >= ::trireme::local::stream_from());
    out.copied += n, most -= n;
    if (out.copied < body.bytes) return false;
    lent = memory_->lend(std::move(out.block), body.bytes);
    out.block = nullptr;
    if (lent) out.lent_bytes += body.bytes;
  }
  return true;
}

/// Writes records of about `most` bytes at most, while there is room. True: that was all.
bool LocalChannel::write(Outgoing& out, RecordKind kind, uint64_t most) {
  if (!out.writer) out.writer = std::make_unique<MessageWriter>(out.message, out.lent);
  for (uint64_t moved = 0; out.writer->left() > 0 && moved < most;) {
    const uint64_t n = std::min(out.writer->left(), kRecordMost);
    unsigned char* to = out_.room(n);
    if (!to) return false;
    out.writer->write(to, n);
    out_.publish(kind, n);
    moved += n;
  }
  return out.writer->left() == 0;
}

void LocalChannel::sent(const Outgoing& out) {
  unsent_ -= out.bytes, --queued_;
  went_ahead(out.lent_bytes);
}

void LocalChannel::went_ahead(uint64_t lent_bytes) {
  if (lent_bytes == 0) return;
  ahead_.emplace_back(out_.head(), lent_bytes);
  ahead_bytes_ += lent_bytes;
}

bool LocalChannel::too_far_ahead() {
  if (ahead_bytes_ <= kMostAhead) return false;
  for (const uint64_t taken = out_.taken(); !ahead_.empty() && ahead_.front().first <= taken;) {
    ahead_bytes_ -= ahead_.front().second;
    ahead_.pop_front();
  }
  return ahead_bytes_ > kMostAhead;
}

/// True: none of the short messages waits any more.
bool LocalChannel::flush_short(std::vector<Outgoing>& done) {
  while (!short_.empty()) {
    Outgoing& out = short_.front();
    if (!out.writer) {
      if (!out.message.bodies.empty() && too_far_ahead()) return false;
      place(out, kAll);
    }
    if (!write(out, kShort, kAll)) return false;
    sent(out);
    done.push_back(std::move(out));
    short_.pop_front();
  }
  return true;
}

LocalChannel::Step LocalChannel::step_long() {
  Outgoing* out;
  {
    std::lock_guard lock(out_mutex_);
    if (long_.empty()) return Step::idle;
    out = &long_.front();  // stays there: others only add behind it
    const bool begun = out->block || out->writer || out->next > 0;
    if (!begun && too_far_ahead()) return Step::blocked;
  }
  if (!out->writer && !place(*out, kChunk)) return Step::moved;
  std::vector<Outgoing> done;
  bool moved;
  {
    std::lock_guard lock(out_mutex_);
    const uint64_t before = out_.head();
    if (write(*out, kLong, kChunk)) {
      sent(*out);
      done.push_back(std::move(*out));
      long_.pop_front();
    }
    moved = out_.head() != before;
  }
  if (moved) peer_bell_.ring();
  return moved ? Step::moved : Step::blocked;
}

LocalChannel::Pumped LocalChannel::pump(bool may_copy) {
  if (over_.load(std::memory_order_acquire)) return Pumped::nothing;
  try {
    memory_->collect(*lane_out());
    if (queued_.load(std::memory_order_acquire) == 0) return Pumped::nothing;
    const uint64_t taken = lane_out()->taken.load(std::memory_order_acquire);
    if (blocked_ && taken == blocked_at_) return Pumped::nothing;
    blocked_ = false;
    std::vector<Outgoing> done;
    bool moved, waits;
    {
      std::lock_guard lock(out_mutex_);
      const uint64_t before = out_.head();
      waits = !flush_short(done);
      moved = out_.head() != before;
    }
    if (moved) peer_bell_.ring();
    if (!waits && !may_copy) return Pumped::more;
    const Step step = waits ? Step::blocked : step_long();
    if (step == Step::moved) return Pumped::chunk;
    if (step == Step::idle) return moved ? Pumped::more : Pumped::nothing;
    lane_out()->sender_waits.store(1, std::memory_order_relaxed);
    ::trireme::local::full_fence();  // `sender_waits` first, then their `taken`
    blocked_at_ = lane_out()->taken.load(std::memory_order_acquire);
    blocked_ = blocked_at_ == taken;
    return blocked_ ? Pumped::nothing : Pumped::more;
  } catch (const Corrupt& e) {
    end(fmt::format("{} broke the channel: {}", who(), e.what()), e.what());
    return Pumped::more;
  }
}

std::shared_ptr<void> LocalChannel::empty(uint64_t bytes) {
  mark_.check("this channel");
  check<UsageError>(bytes <= kMostBodyBytes, "a body of {} bytes; at most {} are possible", bytes,
                    kMostBodyBytes);
  if (bytes >= kLendFrom && !over_.load(std::memory_order_acquire)) {
    try {
      memory_->collect(*lane_out());
    } catch (const Corrupt& e) {
      end(fmt::format("{} broke the channel: {}", who(), e.what()), e.what());
    }
    if (std::shared_ptr<void> block = memory_->make(bytes)) return block;
  }
  return plain_memory(bytes);
}

}  // namespace trireme::channel::local
