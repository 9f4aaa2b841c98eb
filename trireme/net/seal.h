// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/export.h"

struct evp_mac_ctx_st;

// What keeps a connection honest after the handshake, where its ends share a secret. A sealed frame
// is
//   header, tag of the header, payload, tag of header and payload
// with a tag = the first kTagBytes of HMAC-SHA256(key, number u64, part u8, bytes): `number` counts
// the frames of this direction from 0 and is not sent, `part` is 0 for the header alone and 1 for
// both. Each direction has a key of its own (net/auth.h). So whoever relays the connection can
// delay it and cut it; a frame that was altered, repeated, left out, put in, or sent back at its
// author has no right tag. The header's own tag: a length is believed before its bytes are waited
// for.
namespace trireme::net {

/// One direction of one connection. One thread at a time.
class TRIREME_API Seal {
 public:
  static constexpr size_t kTagBytes = 16;

  explicit Seal(std::string_view key);
  Seal(Seal&&) noexcept;
  Seal& operator=(Seal&&) noexcept;
  ~Seal();

  /// The sealed form of a frame as encode_frame() gives it, which is the next of this direction.
  std::string sign(std::string frame);
  /// The same where the payload lies in pieces: begin() gives the tag of the header, add() takes
  /// the pieces in their order, end() gives the tag of all.
  using Tag = std::array<char, kTagBytes>;
  Tag begin(std::string_view header);
  void add(std::string_view piece);
  Tag end();

  /// Of the next frame that came: first its header, then all of it. Corrupt for a wrong tag; then
  /// the connection is of no use.
  void check_header(std::string_view header, std::string_view tag);
  void check_frame(std::string_view header, std::string_view payload, std::string_view tag);
  /// The second in pieces: expect() with the checked header, add() as they come, check_end().
  void expect(std::string_view header);
  void check_end(std::string_view tag);
  /// Throws that Corrupt: for bytes that need no tag to be wrong.
  [[noreturn]] void refuse() const;

 private:
  enum class Part : uint8_t { header = 0, whole = 1 };
  void start(Part part, std::string_view header);
  Tag finish();

  struct Free {
    void operator()(evp_mac_ctx_st* context) const;
  };
  std::unique_ptr<evp_mac_ctx_st, Free> context_;  // holds the key
  uint64_t number_ = 0;
};

/// What a handshake leaves: how frames go out and how they come in. Without a secret: as they are.
struct Session {
  std::optional<Seal> out;
  std::optional<Seal> in;

  std::string seal(std::string frame) { return out ? out->sign(std::move(frame)) : frame; }
};

}  // namespace trireme::net
