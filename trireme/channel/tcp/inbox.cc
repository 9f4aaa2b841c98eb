// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/tcp/inbox.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/net/printable.h"

namespace trireme::channel::tcp {
namespace {

constexpr size_t kRead = size_t{16} << 10;        // small messages, several at once
constexpr size_t kBehindChunk = size_t{2} << 10;  // its tag, the next header, a small message
/// A message or a head with all the sizes that it may have.
constexpr size_t kMostPayload = kChunk + 1 + 8 + 8 * kMostBodies;
constexpr size_t kChunkHead = 1;  // a chunk's place

}  // namespace

PartialMessage::PartialMessage(const MessageSizes& sizes)
    : left_(sizes.total()), bytes_(sizes.bytes), sizes_(sizes.bodies) {
  skip_whole();
}

/// Bodies without bytes, and those that are whole, are done.
void PartialMessage::skip_whole() {
  if (bytes_come_ < bytes_) return;
  while (message_.bodies.size() < sizes_.size()) {
    if (!body_) body_.emplace(sizes_[message_.bodies.size()]);
    if (!body_->whole()) return;
    message_.bodies.push_back(body_->take());
    body_.reset();
  }
}

std::span<char> PartialMessage::room(uint64_t most) {
  if (bytes_come_ == bytes_) return body_ ? body_->room(most) : std::span<char>();
  std::string& bytes = message_.bytes;
  if (bytes_come_ == bytes.size())
    bytes.resize(std::min(bytes_, std::max<uint64_t>(2 * bytes.size(), kChunk)));
  return {bytes.data() + bytes_come_, std::min<uint64_t>(most, bytes.size() - bytes_come_)};
}

void PartialMessage::came(uint64_t bytes) {
  left_ -= bytes;
  if (bytes_come_ < bytes_)
    bytes_come_ += bytes;
  else
    body_->came(bytes);
  skip_whole();
}

Message PartialMessage::take() { return std::move(message_); }

void Inbox::Buffer::make_room(size_t bytes) {
  if (capacity - end >= bytes) return;
  if (capacity - size() >= bytes && size() <= begin) {
    std::memcpy(data.get(), data.get() + begin, size());
  } else {
    const size_t next = std::max(kRead, size() + bytes);
    auto grown = std::make_unique_for_overwrite<char[]>(next);
    if (size()) std::memcpy(grown.get(), data.get() + begin, size());
    data = std::move(grown);
    capacity = next;
  }
  end = size();
  begin = 0;
}

void Inbox::Buffer::use_up(size_t bytes) {
  begin += bytes;
  if (begin < end) return;
  *this = Buffer();  // ten thousand idle channels cost no buffers
}

Inbox::Room Inbox::room() {
  Room out;
  size_t buffered = kRead, most = SIZE_MAX;
  if (in_chunk_ && chunk_left_ > 0) {
    const auto body = places_[chunk_place_]->room(chunk_left_);
    out.parts[out.count++] = {body.data(), body.size()};
    buffered = most = kBehindChunk;
  } else if (header_checked_) {
    // As long as a frame comes, room for twice what is there: a length alone costs nothing.
    const size_t whole = net::kFrameHeaderBytes + header_.length + 2 * net::Seal::kTagBytes;
    if (whole > buffer_.size())
      buffered = std::min(std::max(kRead, buffer_.size()), whole - buffer_.size());
  }
  buffer_.make_room(buffered);
  out.parts[out.count++] = {buffer_.data.get() + buffer_.end,
                            std::min(most, buffer_.capacity - buffer_.end)};
  return out;
}

void Inbox::came(size_t bytes) {
  if (in_chunk_ && chunk_left_ > 0) {
    const auto body = places_[chunk_place_]->room(chunk_left_);
    const size_t in_place = std::min(bytes, body.size());
    took_of_chunk(body.first(in_place));
    bytes -= in_place;
  }
  buffer_.end += bytes;
}

void Inbox::took_of_chunk(std::span<const char> bytes) {
  if (seal_) seal_->add({bytes.data(), bytes.size()});
  places_[chunk_place_]->came(bytes.size());
  chunk_left_ -= bytes.size();
}

void Inbox::begin_chunk(uint32_t length, uint8_t place) {
  check<Corrupt>(place < kPlaces && places_[place], "a chunk of a message that has no head");
  check<Corrupt>(length > kChunkHead && length - kChunkHead <= kChunk,
                 "a chunk of {} bytes; 1 to {}", length - kChunkHead, kChunk);
  check<Corrupt>(length - kChunkHead <= places_[place]->left(),
                 "a chunk of {} bytes of a message of which {} are left", length - kChunkHead,
                 places_[place]->left());
  in_chunk_ = true;
  chunk_place_ = place;
  chunk_left_ = length - kChunkHead;
  taken_ += chunk_left_;
}

Inbox::News Inbox::end_chunk() {
  in_chunk_ = false;
  header_checked_ = false;
  auto& partial = places_[chunk_place_];
  if (partial->left() == 0) {
    complete_ = partial->take();
    partial.reset();
  }
  News out;
  out.we_took = taken_;
  return out;
}

std::optional<Inbox::News> Inbox::next() {
  if (complete_) {
    News out;
    out.message = std::move(complete_);
    complete_.reset();
    return out;
  }
  const size_t tag_bytes = seal_ ? net::Seal::kTagBytes : 0;
  const size_t head_bytes = net::kFrameHeaderBytes + tag_bytes;
  while (true) {
    if (in_chunk_) {
      while (chunk_left_ > 0 && buffer_.size() > 0) {
        const auto body = places_[chunk_place_]->room(std::min(chunk_left_, buffer_.size()));
        std::memcpy(body.data(), buffer_.bytes().data(), body.size());
        buffer_.use_up(body.size());
        took_of_chunk(body);
      }
      if (chunk_left_ > 0 || buffer_.size() < tag_bytes) return std::nullopt;
      if (seal_) seal_->check_end(buffer_.bytes().substr(0, tag_bytes));
      buffer_.use_up(tag_bytes);
      return end_chunk();
    }
    const std::string_view bytes = buffer_.bytes();
    if (bytes.size() < head_bytes) return std::nullopt;
    if (!header_checked_) {
      const auto head = bytes.substr(0, net::kFrameHeaderBytes);
      if (seal_) seal_->check_header(head, bytes.substr(head.size(), tag_bytes));
      header_ = net::decode_frame_header(head, kMostPayload);
      header_checked_ = true;
    }
    if (header_.type == static_cast<uint16_t>(ChannelFrame::chunk)) {
      if (bytes.size() < head_bytes + kChunkHead) return std::nullopt;
      const auto place = bytes.substr(head_bytes, kChunkHead);
      begin_chunk(header_.length, static_cast<uint8_t>(place[0]));
      if (seal_) {
        seal_->expect(bytes.substr(0, net::kFrameHeaderBytes));
        seal_->add(place);
      }
      buffer_.use_up(head_bytes + kChunkHead);
      continue;
    }
    const size_t whole = head_bytes + header_.length + tag_bytes;
    if (bytes.size() < whole) return std::nullopt;
    const auto payload = bytes.substr(head_bytes, header_.length);
    if (seal_)
      seal_->check_frame(bytes.substr(0, net::kFrameHeaderBytes), payload,
                         bytes.substr(head_bytes + header_.length, tag_bytes));
    auto news = on_frame(header_.type, payload);
    header_checked_ = false;
    buffer_.use_up(whole);
    if (news) return news;
  }
}

/// nullopt: it said nothing that anybody waits for.
std::optional<Inbox::News> Inbox::on_frame(uint16_t type, std::string_view payload) {
  net::Reader in(payload, "a frame of a channel");
  News out;
  switch (static_cast<ChannelFrame>(type)) {
    case ChannelFrame::message: {
      const MessageSizes sizes = decode_sizes(in);
      check<Corrupt>(sizes.total() <= kChunk, "a message of {} bytes in one frame; at most {}",
                     sizes.total(), kChunk);
      Message message;
      message.bytes = in.raw(sizes.bytes);
      message.bodies.reserve(sizes.bodies.size());
      for (const uint64_t size : sizes.bodies) {
        GrowingMemory memory(size);
        const auto from = in.raw(size);
        if (size > 0) std::memcpy(memory.room(size).data(), from.data(), size);
        memory.came(size);
        message.bodies.push_back(memory.take());
      }
      in.finish();
      out.message = std::move(message);
      return out;
    }
    case ChannelFrame::head: {
      const uint8_t place = in.u8();
      const MessageSizes sizes = decode_sizes(in);
      in.finish();
      check<Corrupt>(place < kPlaces && !places_[place], "the head of a message in a taken place");
      check<Corrupt>(sizes.total() > kChunk, "a message of {} bytes in chunks", sizes.total());
      places_[place].emplace(sizes);
      return std::nullopt;
    }
    case ChannelFrame::taken:
      out.they_took = in.u64();
      in.finish();
      return out;
    case ChannelFrame::closing:
      out.closing = net::printable(in.string());
      in.finish();
      return out;
    case ChannelFrame::chunk:
    case ChannelFrame::greeting:
      break;
  }
  fail<Corrupt>("a frame of type {} on a channel", type);
}

}  // namespace trireme::channel::tcp
