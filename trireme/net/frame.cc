// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/frame.h"

#include "trireme/base/check.h"

namespace trireme::net {
namespace {

constexpr std::string_view kMagic = "TRIR";

}  // namespace

FrameHeader decode_frame_header(std::string_view bytes, size_t limit) {
  Reader in(bytes.substr(0, kFrameHeaderBytes), "frame header");
  check<Corrupt>(in.raw(kMagic.size()) == kMagic, "these bytes do not begin a frame of Trireme's");
  uint16_t version = in.u16();
  check<Corrupt>(version > 0, "a frame of version 0");
  check<Mismatch>(version == kFrameVersion,
                  "the other end speaks version {} of the control protocol and this program "
                  "version {}: run the same "
                  "release of Trireme on every rank",
                  version, kFrameVersion);
  FrameHeader header{in.u16(), in.u32()};
  check<Corrupt>(header.length <= limit, "a frame of {} bytes where at most {} are allowed",
                 header.length, limit);
  return header;
}

std::string encode_frame_header(FrameHeader header) {
  return Writer().raw(kMagic).u16(kFrameVersion).u16(header.type).u32(header.length).take();
}

std::string encode_frame(uint16_t type, std::string_view payload) {
  check<UsageError>(payload.size() <= kMaxPayloadAfter,
                    "a message of {} bytes; at most {} fit into one", payload.size(),
                    kMaxPayloadAfter);
  return encode_frame_header({type, static_cast<uint32_t>(payload.size())}).append(payload);
}

std::optional<Frame> FrameParser::next(size_t limit) {
  std::string_view bytes = std::string_view(buffer_).substr(start_);
  // A stranger's first wrong byte is enough; do not wait for twelve.
  auto begins = bytes.substr(0, kMagic.size());
  bool begins_well = begins == kMagic.substr(0, begins.size());
  if (!begins_well && seal_) seal_->refuse();
  check<Corrupt>(begins_well, "these bytes do not begin a frame of Trireme's");
  const size_t tag_bytes = seal_ ? Seal::kTagBytes : 0;
  const size_t head_bytes = kFrameHeaderBytes + tag_bytes;
  if (bytes.size() < head_bytes) return std::nullopt;
  auto head = bytes.substr(0, kFrameHeaderBytes);
  if (seal_ && !header_checked_) seal_->check_header(head, bytes.substr(head.size(), tag_bytes));
  header_checked_ = true;
  const FrameHeader header = decode_frame_header(head, limit);
  if (bytes.size() - head_bytes < header.length + tag_bytes) return std::nullopt;
  auto payload = bytes.substr(head_bytes, header.length);
  if (seal_) seal_->check_frame(head, payload, bytes.substr(head_bytes + header.length, tag_bytes));
  Frame frame{header.type, std::string(payload)};
  header_checked_ = false;
  use_up(head_bytes + header.length + tag_bytes);
  return frame;
}

FrameParser::Rest FrameParser::release() {
  Rest out{std::move(seal_), buffer_.substr(start_)};
  seal_.reset();
  use_up(buffered());
  return out;
}

void FrameParser::use_up(size_t bytes) {
  start_ += bytes;
  if (start_ == buffer_.size()) {
    buffer_.clear();
    start_ = 0;
    if (buffer_.capacity() > kMaxPayloadBefore * 64) buffer_.shrink_to_fit();
  } else if (start_ > buffer_.size() / 2) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
}

void send_frame(Socket& socket, uint16_t type, std::string_view payload, Deadline deadline) {
  socket.send_all(encode_frame(type, payload), deadline);
}

Frame recv_frame(Socket& socket, size_t limit, Deadline deadline, Seal* seal) {
  return recv_frame([&](char* to, size_t bytes) { socket.recv_all(to, bytes, deadline); }, limit,
                    seal);
}

Frame recv_frame(const std::function<void(char* to, size_t bytes)>& receive, size_t limit,
                 Seal* seal) {
  char bytes[kFrameHeaderBytes + Seal::kTagBytes];
  receive(bytes, kFrameHeaderBytes + (seal ? Seal::kTagBytes : 0));
  std::string_view head(bytes, kFrameHeaderBytes);
  if (seal) seal->check_header(head, {bytes + kFrameHeaderBytes, Seal::kTagBytes});
  const FrameHeader header = decode_frame_header(head, limit);
  Frame frame{header.type, std::string(header.length, '\0')};
  receive(frame.payload.data(), frame.payload.size());
  if (seal) {
    char tag[Seal::kTagBytes];
    receive(tag, sizeof tag);
    seal->check_frame(head, frame.payload, {tag, sizeof tag});
  }
  return frame;
}

}  // namespace trireme::net
