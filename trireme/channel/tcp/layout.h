// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/channel/tcp/outbox.h"
#include "trireme/net/seal.h"

namespace trireme::channel::tcp {

/// Frames as writev(2) takes them: what is small is copied together, what is large stays where it
/// is, and must stay until all is written. Sealed as they are laid out, so in their order. One
/// thread at a time.
class TRIREME_API Layout {
 public:
  /// The frames of a parcel, after the last is written. `seal`: of a connection that has seals.
  void lay_out(const Parcel& parcel, std::optional<net::Seal>& seal);

  bool written() const { return at_ == pieces_.size(); }
  /// What is still to be written, and how many pieces of it writev(2) takes at once.
  const iovec* pieces() const { return pieces_.data() + at_; }
  int count() const;
  void wrote(size_t bytes);

 private:
  void begin(ChannelFrame type, uint64_t payload, std::optional<net::Seal>& seal);
  void copy(std::string_view bytes, std::optional<net::Seal>& seal);
  /// Of memory that stays: copied only where it is small.
  void put(std::string_view bytes, std::optional<net::Seal>& seal);
  void end(std::optional<net::Seal>& seal);
  void put_message(const Message& message, std::optional<net::Seal>& seal);
  void put_chunk(LongMessage& of, uint64_t bytes, std::optional<net::Seal>& seal);
  void append(std::string_view bytes);

  std::string small_;
  std::vector<iovec> pieces_;  // of small_: a null base until all is laid out
  size_t at_ = 0;
};

}  // namespace trireme::channel::tcp
