// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/net/bytes.h"
#include "trireme/net/seal.h"
#include "trireme/net/socket.h"

// What goes over every control connection:
//   offset  0  magic    4 bytes "TRIR"
//           4  version  u16     3 (2: before frames were sealed; 1: before the store kept wills)
//           6  type     u16     net/auth.h: 1…15; store/protocol.h: from 16
//           8  length   u32     of the payload
//          12  payload
// Little-endian. After a handshake with a secret a tag follows the header and another the payload
// (net/seal.h). docs/control_protocol.md is the grammar. Failure: Corrupt for bytes that are no
// frame or too long, Mismatch for another version (it names both). After either the connection is
// of no use.
namespace trireme::net {

inline constexpr uint16_t kFrameVersion = 3;
inline constexpr size_t kFrameHeaderBytes = 12;
/// The longest payload from somebody who has not said who he is, and from one who has.
inline constexpr size_t kMaxPayloadBefore = size_t{1} << 10;
inline constexpr size_t kMaxPayloadAfter = size_t{16} << 20;

struct Frame {
  uint16_t type = 0;
  std::string payload;
  bool operator==(const Frame&) const = default;
};

TRIREME_API std::string encode_frame(uint16_t type, std::string_view payload);

/// The kFrameHeaderBytes of a frame, for who lays it out himself; decode: Corrupt, Mismatch.
struct FrameHeader {
  uint16_t type = 0;
  uint32_t length = 0;
};
TRIREME_API std::string encode_frame_header(FrameHeader header);
TRIREME_API FrameHeader decode_frame_header(std::string_view bytes, size_t limit);

/// Takes bytes as they come and gives whole frames. Holds at most one unfinished frame of `limit`
/// bytes beside what was fed.
class TRIREME_API FrameParser {
 public:
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  /// nullopt: more bytes are needed. The limit is checked as soon as the header is there.
  std::optional<Frame> next(size_t limit);
  /// From the next frame on they come sealed.
  void expect_seals(Seal seal) { seal_ = std::move(seal); }
  size_t buffered() const { return buffer_.size() - start_; }
  /// For somebody who goes on with the stream himself, between two frames: how they come, and what
  /// has come of the next.
  struct Rest {
    std::optional<Seal> seal;
    std::string bytes;
  };
  Rest release();

 private:
  void use_up(size_t bytes);

  std::optional<Seal> seal_;
  bool header_checked_ = false;  // of the unfinished frame
  std::string buffer_;
  size_t start_ = 0;  // bytes before it are used up
};

TRIREME_API void send_frame(Socket& socket, uint16_t type, std::string_view payload,
                            Deadline deadline);
/// `seal`: of the other end's frames, where they are sealed.
TRIREME_API Frame recv_frame(Socket& socket, size_t limit, Deadline deadline, Seal* seal = nullptr);
/// The same from somebody who waits in a way of his own: `receive` fills so many bytes.
TRIREME_API Frame recv_frame(const std::function<void(char* to, size_t bytes)>& receive,
                             size_t limit, Seal* seal);

}  // namespace trireme::net
