// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/channel_local_targets.h"
#include "tests/fuzz/channel_tcp_targets.h"
#include "tests/fuzz/checkpoint_targets.h"
#include "tests/fuzz/etcd_targets.h"
#include "tests/fuzz/event_targets.h"
#include "tests/fuzz/members_targets.h"
#include "tests/fuzz/part_targets.h"
#include "tests/fuzz/python_targets.h"
#include "tests/fuzz/rpc_backward_targets.h"
#include "tests/fuzz/rpc_meet_targets.h"
#include "tests/fuzz/rpc_object_targets.h"
#include "tests/fuzz/rpc_targets.h"
#include "tests/fuzz/schedule_targets.h"
#include "tests/fuzz/text_targets.h"
#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/net/auth.h"
#include "trireme/net/frame.h"
#include "trireme/store/file/file_log.h"
#include "trireme/store/file/file_seats.h"
#include "trireme/store/protocol.h"
#include "trireme/store/server/answer.h"

// What strangers' bytes meet first. Each function takes any bytes and returns; whatever else it
// does is a finding. corpus_test.cc feeds them the corpus and mutations of it, fuzz_main.cc
// libFuzzer's.
namespace trireme::fuzz {

inline void require(bool ok, const char* what) {
  if (!ok) throw std::logic_error(what);
}

inline std::string_view take(std::string_view& from, size_t n) {
  auto out = from.substr(0, n);
  from.remove_prefix(out.size());
  return out;
}

/// Frames and their refusal, fed in pieces of `step` bytes (0: at once).
struct Parsed {
  std::vector<net::Frame> frames;
  std::string refused;
};
inline Parsed parse(std::string_view bytes, size_t step, size_t limit) {
  Parsed out;
  net::FrameParser in;
  try {
    while (!bytes.empty()) {
      in.feed(take(bytes, step ? step : bytes.size()));
      while (auto frame = in.next(limit)) out.frames.push_back(std::move(*frame));
      require(in.buffered() <= limit + net::kFrameHeaderBytes + step || step == 0,
              "the parser holds more than one frame");
    }
  } catch (const Corrupt& error) {
    out.refused = error.what();
  } catch (const Mismatch& error) {
    out.refused = error.what();
  }
  return out;
}

inline void frames(std::string_view bytes) {
  size_t step = 1;
  if (!bytes.empty()) step += static_cast<unsigned char>(take(bytes, 1)[0]);
  for (size_t limit : {net::kMaxPayloadBefore, net::kMaxPayloadAfter}) {
    auto whole = parse(bytes, 0, limit), pieces = parse(bytes, step, limit);
    require(whole.frames == pieces.frames && whole.refused == pieces.refused,
            "it matters how the bytes are cut");
    std::string again;
    for (const auto& frame : whole.frames) {
      require(frame.payload.size() <= limit, "a frame beyond the limit");
      again += net::encode_frame(frame.type, frame.payload);
    }
    require(bytes.starts_with(again), "frames are written otherwise than they are read");
  }
}

inline void requests(std::string_view bytes) {
  detail::KeyTable table(4096);
  size_t rooms = 0;
  for (const auto& frame : parse(bytes, 0, net::kMaxPayloadAfter).frames) {
    auto encoded = net::encode_frame(frame.type, frame.payload);
    try {
      require(detail::encode(detail::decode_reply(frame)) == encoded,
              "replies are written otherwise than they are read");
    } catch (const Corrupt&) {
    }
    try {
      auto request = detail::decode_request(frame);
      require(detail::encode(request) == encoded,
              "requests are written otherwise than they are read");
      if (detail::answer(table, request)) continue;
      if (request.op == detail::Op::set_will)
        rooms += table.keep_room(request.keys[0], request.value);
    } catch (const Corrupt&) {
    } catch (const UsageError&) {  // of a will
    } catch (const ResourceError&) {
    }
  }
  table.give_back_room(rooms);
  require(table.count("") <= 4096 / 128, "the table holds more than it may");
}

inline void handshake(std::string_view bytes) {
  static const net::Credentials kWithout{"job", {}};
  static const net::Credentials kWith{"job", net::Secret("0123456789abcdef0123456789abcdef")};
  for (const auto* own : {&kWithout, &kWith}) {
    net::ServerHandshake server(*own);
    for (const auto& frame : parse(bytes, 0, net::kMaxPayloadBefore).frames) {
      auto step = server.on_frame(frame);
      require(!step.done, "somebody without a proof is let in");
      require(!step.reply.empty(), "no reply");
      if (step.refused) break;
    }
    int fds[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return;
    net::Socket client(UniqueFd(fds[0]), "the server"), stranger(UniqueFd(fds[1]), "the client");
    stranger.send_now(bytes.substr(0, 4096));
    stranger.shutdown_write();
    try {
      require(net::try_authenticate(client, *own, Deadline::after(std::chrono::seconds(1)))
                  .refused.has_value(),
              "somebody without a proof is believed");
    } catch (const Error&) {
    }
  }
}

/// What a relay may do to sealed frames. The first four bytes: how the stream is cut, what is done
/// to it, to which frame and at which byte; then payloads, each after a byte that tells its length.
inline void sealed(std::string_view bytes) {
  if (bytes.size() < 4) return;
  auto number = [&] { return static_cast<unsigned char>(take(bytes, 1)[0]); };
  const size_t step = 1 + number(), deed = number(), which = number(), at = number();
  const std::string key(32, 'k'), other_key(32, 'o');
  net::Seal out(key), back(other_key);
  std::vector<net::Frame> said;
  std::vector<std::string> sealed;
  while (!bytes.empty() && said.size() < 16) {
    const auto length = number();
    said.push_back({static_cast<uint16_t>(16 + length % 8), std::string(take(bytes, length))});
    sealed.push_back(out.sign(net::encode_frame(said.back().type, said.back().payload)));
  }
  if (said.empty()) return;
  const size_t i = which % sealed.size();
  const auto bare = net::encode_frame(said[i].type, said[i].payload);
  bool untouched = false;
  switch (deed % 8) {
    case 1:
      sealed[i][at % sealed[i].size()] ^= static_cast<char>(1 << at % 8);
      break;
    case 2:
      sealed.erase(sealed.begin() + static_cast<ptrdiff_t>(i));
      break;
    case 3:
      sealed.insert(sealed.begin() + static_cast<ptrdiff_t>(i), sealed[i]);
      break;
    case 4:
      std::swap(sealed[i], sealed[(i + 1) % sealed.size()]);
      break;
    case 5:
      sealed.insert(sealed.begin() + static_cast<ptrdiff_t>(i), bare);
      break;
    case 6:
      sealed[i].resize(at % sealed[i].size());
      break;
    case 7:
      sealed[i] = back.sign(bare);
      break;
    default:
      untouched = true;
  }
  std::string stream;
  for (const auto& frame : sealed) stream += frame;
  net::FrameParser in;
  in.expect_seals(net::Seal(key));
  std::vector<net::Frame> heard;
  try {
    for (std::string_view rest = stream; !rest.empty();) {
      in.feed(take(rest, step));
      while (auto frame = in.next(net::kMaxPayloadAfter)) heard.push_back(std::move(*frame));
    }
  } catch (const Corrupt&) {
    require(!untouched, "what nobody touched is refused");
  }
  require(heard.size() <= said.size() && std::equal(heard.begin(), heard.end(), said.begin()),
          "something is believed that nobody said, or not then");
  require(!untouched || heard.size() == said.size(), "what nobody touched does not come");
  // Whatever else a relay says in place of the first frame.
  net::FrameParser strict;
  strict.expect_seals(net::Seal(other_key));
  strict.feed(stream);
  try {
    require(deed % 8 == 7 || !strict.next(net::kMaxPayloadAfter),
            "another key's frame is believed");
  } catch (const Corrupt&) {
  }
}

/// The first byte: 0 for a log as it is, else payloads, each after a byte that tells its length,
/// that get the checksums which chance would never give them.
inline void file_log(std::string_view bytes) {
  if (bytes.empty()) return;
  std::string log;
  if (take(bytes, 1)[0] == 0) {
    log = bytes;
  } else {
    log = detail::file_start();
    while (!bytes.empty()) {
      auto payload = take(bytes, static_cast<unsigned char>(take(bytes, 1)[0]));
      log += net::Writer()
                 .u32(static_cast<uint32_t>(payload.size()))
                 .u64(stable_hash(payload))
                 .raw(payload)
                 .take();
    }
  }
  detail::FileState state;
  try {
    if (!detail::check_file_start(log, "the log")) return;
    std::string_view rest = std::string_view(log).substr(detail::kFileStartBytes);
    size_t taken = 0;
    while (auto record = detail::decode_record(rest, &taken)) {
      require(taken <= rest.size() && detail::encode(*record) == rest.substr(0, taken),
              "records are written otherwise than they are read");
      state.apply(*record);
      rest.remove_prefix(taken);
    }
  } catch (const Corrupt&) {
  } catch (const Mismatch&) {
  }
  if (!state.begun()) return;
  for (uint32_t alive : {0u, 1u, 2u, 3u, UINT32_MAX})
    detail::find_seat(
        state, {state.job_id(), state.attempt(), state.world_size(), 0},
        [&](uint32_t client) { return client < 32 && (alive >> client & 1); }, "the log");
}

struct Target {
  const char* name;
  void (*run)(std::string_view);
};
inline constexpr Target kTargets[] = {{"frames", frames},
                                      {"requests", requests},
                                      {"handshake", handshake},
                                      {"sealed", sealed},
                                      {"channel_frames", channel_frames},
                                      {"file_log", file_log},
                                      {"pickle", pickle},
                                      {"torch_file", torch_file},
                                      {"dcp_metadata", dcp_metadata},
                                      {"checkpoint_index", checkpoint_index},
                                      {"safetensors", safetensors},
                                      {"snapshot", snapshot},
                                      {"schedule_table", schedule_table},
                                      {"etcd_answer", etcd_answer},
                                      {"event_ring", event_ring},
                                      {"channel_ring", channel_ring},
                                      {"members", members},
                                      {"parts", parts},
                                      {"vocabulary", vocabulary},
                                      {"natural_question", natural_question},
                                      {"prepared_part", prepared_part},
                                      {"rpc_messages", rpc_messages},
                                      {"rpc_references", rpc_references},
                                      {"rpc_members", rpc_members},
                                      {"rpc_backward_calls", rpc_backward_calls},
                                      {"rpc_backward_plan", rpc_backward_plan}};

}  // namespace trireme::fuzz
