// SPDX-License-Identifier: Apache-2.0
// The client's side: how a channel to another worker is opened.
#include <poll.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/channel/tcp/tcp_hub.h"
#include "trireme/net/auth.h"
#include "trireme/net/connect.h"
#include "trireme/net/printable.h"

namespace trireme::channel::tcp {
namespace {

/// That it is who we look for, and takes us.
void check_answer(const Greeting& theirs, const Peer& ours, const Peer& expected,
                  const std::string& who) {
  check<Mismatch>(theirs.version == kChannelVersion,
                  "{} speaks version {} of channels and this worker version {}: run the same "
                  "release of Trireme on every host",
                  who, theirs.version, kChannelVersion);
  check<Mismatch>(
      theirs.self.name == expected.name && theirs.self.generation == expected.generation,
      "{} of generation {} is expected, and worker '{}' of generation {} answers: look its "
      "address up again",
      who, expected.generation, net::printable(theirs.self.name), theirs.self.generation);
  switch (theirs.verdict) {
    case Verdict::welcome:
      return;
    case Verdict::other_generation:
    case Verdict::other_version:
      fail<Mismatch>("{} refuses worker '{}': {}", who, ours.name, theirs.text);
    case Verdict::not_wanted:
      fail<PeerLost>("{} refuses worker '{}': {}", who, ours.name, theirs.text);
  }
}

}  // namespace

struct TcpHub::Knock {
  std::optional<net::Socket> socket;
  net::Session session;
  Greeting theirs;
  std::string why;
};

void TcpHub::wait_at(const net::Socket& socket, Deadline deadline) {
  pollfd polls[2] = {{socket.fd(), POLLIN, 0}, {door_.fd(), POLLIN, 0}};
  // Two workers that open channels to each other wait for each other here.
  const bool let_in = !somebody_serves();
  ::poll(polls, let_in ? 2 : 1, deadline.poll_ms(100));
  if (let_in && polls[1].revents) tend_door();
}

net::Frame TcpHub::next_frame(net::Socket& socket, std::optional<net::Seal>& seal,
                              Deadline deadline) {
  const auto receive = [&](char* to, size_t bytes) {
    while (bytes > 0) {
      if (const auto n = socket.recv_now(to, bytes)) {
        check<PeerLost>(*n > 0, "it closed the connection");
        to += *n;
        bytes -= *n;
      } else {
        check<Timeout>(!deadline.expired(), "it does not answer (does a thread serve there?)");
        wait_at(socket, deadline);
      }
    }
  };
  return net::recv_frame(receive, net::kMaxPayloadBefore, seal ? &*seal : nullptr);
}

TcpHub::Knock TcpHub::knock(const net::Endpoint& at, const std::string& who, Deadline deadline) {
  Knock out;
  bool nobody_listens = false;
  auto socket = net::try_connect(at, deadline, &out.why, &nobody_listens);
  check<PeerLost>(socket || !nobody_listens, "{} is gone: nobody listens there", who);
  if (!socket) return out;
  try {
    net::ClientHandshake handshake(options_.credentials, who);
    socket->send_all(handshake.hello(), deadline);
    while (!handshake.done())
      socket->send_all(handshake.on_frame(next_frame(*socket, out.session.in, deadline)), deadline);
    auto entry = handshake.take_entry();
    if (!entry.refused) {
      out.session = std::move(entry.session);
      const auto type = static_cast<uint16_t>(ChannelFrame::greeting);
      Greeting ours;
      ours.self = options_.self;
      socket->send_all(out.session.seal(net::encode_frame(type, encode_greeting(ours))), deadline);
      const net::Frame answer = next_frame(*socket, out.session.in, deadline);
      entry.refused = net::read_refusal(answer);
      if (!entry.refused) {
        check<Corrupt>(answer.type == type, "a frame of type {} in place of a greeting",
                       answer.type);
        out.theirs = decode_greeting(answer.payload);
        out.socket = std::move(socket);
        return out;
      }
    }
    out.why = net::refusal_sentence(who, *entry.refused, false);
    check<UsageError>(entry.refused->code == net::Refusal::busy, "{}", out.why);
  } catch (const PeerLost& error) {  // strangers pushed us out, or it is gone: then nobody listens
    out.why = error.what();
  } catch (const Timeout& error) {
    out.why = error.what();
  } catch (const Corrupt& error) {
    fail<PeerLost>("{} is gone: another program answers there ({})", who, error.what());
  } catch (const Mismatch& error) {
    fail<Mismatch>("{}: {}", who, error.what());
  }
  return out;
}

std::shared_ptr<Channel> TcpHub::open(const std::string& address, const Peer& expected,
                                      std::shared_ptr<Receiver> receiver, Deadline deadline) {
  check_caller("opens a channel");
  check<UsageError>(receiver != nullptr, "a channel to worker '{}' without a receiver",
                    expected.name);
  const auto start = Clock::now();
  const auto at = net::Endpoint::parse(address);
  const std::string who = fmt::format("worker '{}' at {}", expected.name, address);
  net::BackOff back_off;
  while (true) {
    Knock one = knock(at, who, deadline);
    if (one.socket) {
      check_answer(one.theirs, options_.self, expected, who);
      auto channel = std::make_shared<TcpChannel>(road_, std::move(*one.socket),
                                                  std::move(one.session), one.theirs.self);
      channel->start(std::move(receiver), "");
      return channel;
    }
    check<Timeout>(back_off.pause(deadline), "no channel to {} within {:.1f} s: {}", who,
                   seconds_since(start), one.why);
  }
}

}  // namespace trireme::channel::tcp
