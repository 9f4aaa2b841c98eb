// SPDX-License-Identifier: Apache-2.0
#include "trireme/channel/tcp/layout.h"

#include <algorithm>

#include "trireme/net/frame.h"

namespace trireme::channel::tcp {
namespace {

constexpr size_t kCopied = size_t{8} << 10;  // a longer piece stays where it is
constexpr size_t kMostPieces = 256;          // of one call; the kernel takes 1,024
constexpr size_t kKept = size_t{64} << 10;   // of small_, for the next parcel

std::string_view part_of(const Message& message, size_t part) {
  if (part == 0) return message.bytes;
  const Body& body = message.bodies[part - 1];
  return {static_cast<const char*>(body.data.get()), body.bytes};
}

}  // namespace

void Layout::lay_out(const Parcel& parcel, std::optional<net::Seal>& seal) {
  if (small_.capacity() > kKept) small_ = std::string();
  small_.clear();
  pieces_.clear();
  at_ = 0;
  const auto whole = [&](ChannelFrame type, std::string_view payload) {
    begin(type, payload.size(), seal);
    copy(payload, seal);
    end(seal);
  };
  if (!parcel.greeting.empty()) whole(ChannelFrame::greeting, parcel.greeting);
  if (parcel.taken) whole(ChannelFrame::taken, net::Writer().u64(*parcel.taken).bytes());
  for (const Message& message : parcel.messages) put_message(message, seal);
  if (parcel.of) {
    const std::string place(1, static_cast<char>(parcel.place));
    if (parcel.begins)
      whole(ChannelFrame::head, place + encode_sizes(sizes_of(parcel.of->message)));
    begin(ChannelFrame::chunk, 1 + parcel.chunk, seal);
    copy(place, seal);
    put_chunk(*parcel.of, parcel.chunk, seal);
    end(seal);
  }
  if (parcel.closing) whole(ChannelFrame::closing, net::Writer().string(*parcel.closing).bytes());
  // Only now does small_ stay where it is.
  const char* next = small_.data();
  for (iovec& piece : pieces_) {
    if (piece.iov_base) continue;
    piece.iov_base = const_cast<char*>(next);
    next += piece.iov_len;
  }
}

void Layout::append(std::string_view bytes) {
  if (bytes.empty()) return;
  small_ += bytes;
  if (pieces_.empty() || pieces_.back().iov_base) pieces_.push_back({nullptr, 0});
  pieces_.back().iov_len += bytes.size();
}

void Layout::begin(ChannelFrame type, uint64_t payload, std::optional<net::Seal>& seal) {
  const auto header =
      net::encode_frame_header({static_cast<uint16_t>(type), static_cast<uint32_t>(payload)});
  append(header);
  if (!seal) return;
  const auto tag = seal->begin(header);
  append({tag.data(), tag.size()});
}

void Layout::copy(std::string_view bytes, std::optional<net::Seal>& seal) {
  if (seal) seal->add(bytes);
  append(bytes);
}

void Layout::put(std::string_view bytes, std::optional<net::Seal>& seal) {
  if (bytes.size() <= kCopied) return copy(bytes, seal);
  if (seal) seal->add(bytes);
  pieces_.push_back({const_cast<char*>(bytes.data()), bytes.size()});
}

void Layout::end(std::optional<net::Seal>& seal) {
  if (!seal) return;
  const auto tag = seal->end();
  append({tag.data(), tag.size()});
}

void Layout::put_message(const Message& message, std::optional<net::Seal>& seal) {
  const MessageSizes sizes = sizes_of(message);
  begin(ChannelFrame::message, encoded_bytes(sizes) + sizes.total(), seal);
  copy(encode_sizes(sizes), seal);
  for (size_t part = 0; part <= message.bodies.size(); ++part) put(part_of(message, part), seal);
  end(seal);
}

void Layout::put_chunk(LongMessage& of, uint64_t bytes, std::optional<net::Seal>& seal) {
  while (bytes > 0) {
    const auto part = part_of(of.message, of.part).substr(of.offset, bytes);
    put(part, seal);
    bytes -= part.size();
    of.offset += part.size();
    if (bytes == 0) return;
    ++of.part;
    of.offset = 0;
  }
}

int Layout::count() const { return static_cast<int>(std::min(pieces_.size() - at_, kMostPieces)); }

void Layout::wrote(size_t bytes) {
  while (bytes > 0) {
    iovec& piece = pieces_[at_];
    const size_t here = std::min(bytes, piece.iov_len);
    piece.iov_base = static_cast<char*>(piece.iov_base) + here;
    piece.iov_len -= here;
    bytes -= here;
    if (piece.iov_len == 0) ++at_;
  }
}

}  // namespace trireme::channel::tcp
