// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/channel/tcp/inbox.h"
#include "trireme/channel/tcp/layout.h"
#include "trireme/channel/tcp/outbox.h"
#include "trireme/channel/tcp/wire.h"

// What a worker says to another over TCP.
namespace trireme::fuzz {

/// What an inbox makes of the bytes, which come `step` at a time (0: as many as it has room for).
struct ChannelNews {
  std::vector<channel::Message> messages;
  std::vector<std::string> rest;
  std::string refused;
};
inline ChannelNews hear_channel(std::string_view bytes, size_t step) {
  ChannelNews out;
  channel::tcp::Inbox inbox(std::nullopt);
  try {
    while (!bytes.empty()) {
      const auto room = inbox.room();
      const size_t n = std::min({room.bytes(), bytes.size(), step ? step : SIZE_MAX});
      const size_t first = std::min(n, room.parts[0].iov_len);
      std::memcpy(room.parts[0].iov_base, bytes.data(), first);
      if (n > first) std::memcpy(room.parts[1].iov_base, bytes.data() + first, n - first);
      inbox.came(n);
      bytes.remove_prefix(n);
      while (auto news = inbox.next()) {
        if (news->message) out.messages.push_back(std::move(*news->message));
        if (news->we_took) out.rest.push_back("took " + std::to_string(*news->we_took));
        if (news->they_took) out.rest.push_back("they took " + std::to_string(*news->they_took));
        if (news->closing) out.rest.push_back("closing " + *news->closing);
      }
    }
  } catch (const Corrupt& error) {
    out.refused = error.what();
  } catch (const Mismatch& error) {
    out.refused = error.what();
  }
  return out;
}

/// The first byte: in which pieces the rest comes.
inline void channel_frames(std::string_view bytes) {
  const auto require = [](bool ok, const char* what) {
    if (!ok) throw std::logic_error(what);
  };
  if (bytes.empty()) return;
  const size_t step = 1 + static_cast<unsigned char>(bytes[0]);
  bytes.remove_prefix(1);
  const ChannelNews whole = hear_channel(bytes, 0), pieces = hear_channel(bytes, step);
  require(whole.refused == pieces.refused && whole.rest == pieces.rest &&
              whole.messages.size() == pieces.messages.size(),
          "it matters how the bytes are cut");
  std::string again;
  channel::tcp::Outbox outbox;
  for (size_t i = 0; i < whole.messages.size(); ++i) {
    const channel::Message &a = whole.messages[i], &b = pieces.messages[i];
    require(a.bytes == b.bytes && a.bodies.size() == b.bodies.size(),
            "it matters how the bytes are cut");
    for (size_t k = 0; k < a.bodies.size(); ++k)
      require(
          a.bodies[k].bytes == b.bodies[k].bytes &&
              std::memcmp(a.bodies[k].data.get(), b.bodies[k].data.get(), a.bodies[k].bytes) == 0,
          "it matters how the bytes are cut");
    channel::tcp::check_message(a);
    outbox.post(a);
  }
  std::optional<net::Seal> none;
  for (channel::tcp::Parcel parcel; outbox.next(&parcel); parcel = {}) {
    channel::tcp::Layout layout;
    layout.lay_out(parcel, none);
    for (; !layout.written(); layout.wrote(layout.pieces()->iov_len))
      again.append(static_cast<const char*>(layout.pieces()->iov_base), layout.pieces()->iov_len);
  }
  // Alone on the wire, messages are written as they were read.
  if (whole.rest.empty() && whole.messages.size() > 0 && bytes.size() == again.size())
    require(bytes == again, "messages are written otherwise than they are read");
  try {
    const auto greeting = channel::tcp::decode_greeting(bytes);
    const bool ours = greeting.version == channel::tcp::kChannelVersion;
    require(!ours || channel::tcp::decode_greeting(channel::tcp::encode_greeting(greeting)).text ==
                         greeting.text,
            "greetings are written otherwise than they are read");
  } catch (const Corrupt&) {
  }
}

}  // namespace trireme::fuzz
