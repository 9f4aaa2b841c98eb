// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/local/message_format.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::channel::local {

std::shared_ptr<void> plain_memory(uint64_t bytes) {
  constexpr uint64_t kAlign = 64;
  const uint64_t rounded = (std::max<uint64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
  void* p = bytes > rounded ? nullptr : std::aligned_alloc(kAlign, rounded);
  check<ResourceError>(p != nullptr, "no memory for a body of {} bytes", bytes);
  return {p, std::free};
}

namespace {

uint64_t front_bytes_of(const std::vector<std::optional<LentPlace>>& lent) {
  uint64_t bytes = front_bytes(lent.size());
  for (const auto& place : lent) bytes += place ? 16 : 0;
  return bytes;
}

unsigned char* put(unsigned char* to, const void* from, uint64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return to + bytes;
}

unsigned char* write_front(unsigned char* to, const Message& message,
                           const std::vector<std::optional<LentPlace>>& lent) {
  const uint32_t counts[2] = {static_cast<uint32_t>(message.bytes.size()),
                              static_cast<uint32_t>(lent.size())};
  to = put(to, counts, sizeof counts);
  for (size_t i = 0; i < lent.size(); ++i) {
    const uint64_t size = message.bodies[i].bytes << 1 | uint64_t{lent[i].has_value()};
    to = put(to, &size, sizeof size);
    if (lent[i]) to = put(to, &*lent[i], sizeof *lent[i]);
  }
  return to;
}

}  // namespace

uint64_t written_bytes(const Message& message, const std::vector<std::optional<LentPlace>>& lent) {
  uint64_t bytes = front_bytes_of(lent) + message.bytes.size();
  for (size_t i = 0; i < lent.size(); ++i) bytes += lent[i] ? 0 : message.bodies[i].bytes;
  return bytes;
}

void write_message(unsigned char* to, const Message& message,
                   const std::vector<std::optional<LentPlace>>& lent) {
  to = write_front(to, message, lent);
  to = put(to, message.bytes.data(), message.bytes.size());
  for (size_t i = 0; i < lent.size(); ++i)
    if (!lent[i]) to = put(to, message.bodies[i].data.get(), message.bodies[i].bytes);
}

MessageWriter::MessageWriter(const Message& message,
                             const std::vector<std::optional<LentPlace>>& lent)
    : message_(&message), lent_(lent.size()), front_(front_bytes_of(lent), '\0') {
  write_front(reinterpret_cast<unsigned char*>(front_.data()), message, lent);
  for (size_t i = 0; i < lent.size(); ++i) lent_[i] = lent[i].has_value();
  part_ = reinterpret_cast<const unsigned char*>(front_.data());
  part_left_ = front_.size();
  left_ = written_bytes(message, lent);
}

bool MessageWriter::next_part() {
  const size_t i = next_++;
  if (i == 0) {
    part_ = reinterpret_cast<const unsigned char*>(message_->bytes.data());
    part_left_ = message_->bytes.size();
    return true;
  }
  if (i > lent_.size()) return false;
  part_ = static_cast<const unsigned char*>(message_->bodies[i - 1].data.get());
  part_left_ = lent_[i - 1] ? 0 : message_->bodies[i - 1].bytes;
  return true;
}

void MessageWriter::write(unsigned char* to, uint64_t n) {
  while (n > 0) {
    while (part_left_ == 0)
      if (!next_part()) return;
    const uint64_t now = std::min(n, part_left_);
    std::memcpy(to, part_, now);
    to += now, n -= now, left_ -= now;
    part_ += now, part_left_ -= now;
  }
}

/// The compiler does not go back to memory that another process may have changed meanwhile.
static void read_once() { std::atomic_signal_fence(std::memory_order_seq_cst); }

/// True: all of it is there.
bool MessageReader::fill(void* to, uint64_t whole) {
  const uint64_t now = std::min(n_, whole - filled_);
  if (now > 0) std::memcpy(static_cast<unsigned char*>(to) + filled_, data_, now);
  read_once();
  data_ += now, n_ -= now, filled_ += now;
  if (filled_ < whole) return false;
  filled_ = 0;
  return true;
}

std::optional<Message> MessageReader::feed(const unsigned char* data, uint64_t n,
                                           const Resolve& resolve) {
  if (n >= 8 && !in_the_middle()) {  // most are short, and whole
    uint32_t counts[2];
    std::memcpy(counts, data, sizeof counts);
    read_once();
    if (counts[1] == 0 && counts[0] == n - 8 && counts[0] <= kMostBytes)
      return Message{std::string(reinterpret_cast<const char*>(data) + 8, n - 8), {}};
    std::memcpy(word_, counts, sizeof counts);
    data += 8, n -= 8;
    filled_ = 8;
  }
  data_ = data, n_ = n;
  while (true) switch (stage_) {
      case Stage::head: {
        if (!fill(word_, 8)) return std::nullopt;
        uint32_t bytes, bodies;
        std::memcpy(&bytes, word_, 4), std::memcpy(&bodies, word_ + 4, 4);
        check<Corrupt>(bytes <= kMostBytes && bodies <= kMostBodies,
                       "a message of {} bytes and {} bodies", bytes, bodies);
        message_ = {};
        message_.bytes.resize(bytes);
        due_ = bodies;
        lent_.clear(), is_lent_.clear(), next_ = 0;
        stage_ = due_ ? Stage::size : Stage::bytes;
        break;
      }
      case Stage::size: {
        if (!fill(word_, 8)) return std::nullopt;
        uint64_t size;
        std::memcpy(&size, word_, 8);
        check<Corrupt>(size >> 1 <= kMostBodyBytes, "a body of {} bytes", size >> 1);
        message_.bodies.push_back({nullptr, size >> 1});
        is_lent_.push_back(size & 1);
        stage_ = size & 1                         ? Stage::place
                 : message_.bodies.size() == due_ ? Stage::bytes
                                                  : Stage::size;
        break;
      }
      case Stage::place: {
        if (!fill(word_, 16)) return std::nullopt;
        LentPlace place;
        std::memcpy(&place.window, word_, 4), std::memcpy(&place.number, word_ + 4, 4);
        std::memcpy(&place.offset, word_ + 8, 8);
        lent_.emplace_back(message_.bodies.size() - 1, place);
        stage_ = message_.bodies.size() == due_ ? Stage::bytes : Stage::size;
        break;
      }
      case Stage::bytes:
        if (!fill(message_.bytes.data(), message_.bytes.size())) return std::nullopt;
        stage_ = Stage::bodies;
        break;
      case Stage::bodies: {
        for (; next_ < due_; ++next_) {
          Body& body = message_.bodies[next_];
          if (is_lent_[next_] || body.bytes == 0) continue;
          if (!memory_) memory_ = allocate_(body.bytes);
          if (!fill(memory_.get(), body.bytes)) return std::nullopt;
          body.data = std::move(memory_);
          memory_ = nullptr;
        }
        check<Corrupt>(n_ == 0, "{} bytes behind the end of a message", n_);
        for (const auto& [i, place] : lent_)
          message_.bodies[i].data = resolve(place, message_.bodies[i].bytes);
        stage_ = Stage::head;
        return std::move(message_);
      }
    }
}

}  // namespace trireme::channel::local
