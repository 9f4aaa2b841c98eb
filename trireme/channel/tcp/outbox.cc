// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/tcp/outbox.h"

#include <utility>

#include "trireme/base/check.h"

namespace trireme::channel::tcp {
namespace {

// Small messages that are written together: the system call is most of what one of them costs.
constexpr uint64_t kMostTogether = uint64_t{64} << 10;
constexpr size_t kMostMessages = 64;
constexpr size_t kMostWhy = 1024;

uint64_t bytes_of(const Message& message) {
  uint64_t sum = message.bytes.size();
  for (const Body& body : message.bodies) sum += body.bytes;
  return sum;
}

}  // namespace

void Outbox::post(Message message) {
  const uint64_t bytes = bytes_of(message);
  unsent_ += bytes;
  (bytes <= kChunk ? small_ : long_).push_back(std::move(message));
}

void Outbox::peer_took(uint64_t bytes) {
  check<Corrupt>(bytes >= chunks_taken_ && bytes <= chunks_sent_,
                 "it says that it took {} bytes of chunks after {}, and {} were sent", bytes,
                 chunks_taken_, chunks_sent_);
  chunks_taken_ = bytes;
}

void Outbox::close(std::string why) {
  if (closed_) return;
  closed_ = true;
  why.resize(std::min(why.size(), kMostWhy));
  closing_ = std::move(why);
  unsent_ = 0;
}

bool Outbox::next(Parcel* parcel) {
  parcel->greeting = std::exchange(greeting_, {});
  if (closed_) {
    parcel->dropped.assign(std::make_move_iterator(small_.begin()),
                           std::make_move_iterator(small_.end()));
    parcel->dropped.insert(parcel->dropped.end(), std::make_move_iterator(long_.begin()),
                           std::make_move_iterator(long_.end()));
    small_.clear();
    long_.clear();
    for (auto& place : places_)
      if (place) parcel->dropped_long.push_back(std::move(place));
    parcel->closing = std::exchange(closing_, std::nullopt);
    return !parcel->greeting.empty() || parcel->closing;
  }
  parcel->taken = std::exchange(taken_, std::nullopt);
  while (!small_.empty() && parcel->messages.size() < kMostMessages) {
    const uint64_t bytes = bytes_of(small_.front());
    if (!parcel->messages.empty() && parcel->bytes + bytes > kMostTogether) break;
    parcel->bytes += bytes;
    parcel->messages.push_back(std::move(small_.front()));
    small_.pop_front();
  }
  next_chunk(parcel);
  return !parcel->greeting.empty() || parcel->taken || !parcel->messages.empty() || parcel->of;
}

void Outbox::next_chunk(Parcel* parcel) {
  for (auto& place : places_) {
    if (place || long_.empty()) continue;
    place = std::make_shared<LongMessage>();
    place->message = std::move(long_.front());
    place->left = bytes_of(place->message);
    long_.pop_front();
  }
  for (uint8_t i = 0; i < kPlaces; ++i) {
    const uint8_t at = (turn_ + i) % kPlaces;
    auto& place = places_[at];
    if (!place) continue;
    const uint64_t bytes = std::min(kChunk, place->left);
    if (chunks_sent_ - chunks_taken_ + bytes > kMostOnTheWay) return;
    parcel->of = place;
    parcel->place = at;
    parcel->begins = place->left == bytes_of(place->message);
    parcel->chunk = bytes;
    parcel->bytes += bytes;
    chunks_sent_ += bytes;
    place->left -= bytes;
    if (place->left == 0) place.reset();
    turn_ = (at + 1) % kPlaces;
    return;
  }
}

}  // namespace trireme::channel::tcp
