// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/auth.h"

#include <openssl/crypto.h>

#include "trireme/base/check.h"
#include "trireme/net/hmac.h"
#include "trireme/net/printable.h"

namespace trireme::net {
namespace {

enum Type : uint16_t { kHello = 1, kChallenge = 2, kProof = 3, kWelcome = 4, kRefused = 5 };
constexpr uint8_t kHasSecret = 1;
constexpr size_t kNonceBytes = 32;
constexpr std::string_view kPublicKey = "trireme: no secret, everybody knows this key";

void check_job_id(const std::string& job_id) {
  check<UsageError>(job_id.size() <= kMaxJobId, "a job id of {} bytes; at most {}", job_id.size(),
                    kMaxJobId);
}

uint8_t flags_of(const Credentials& own) { return own.secret ? kHasSecret : 0; }

Session sealed(const HandshakeKeys& keys, bool is_server) {
  Session out;
  out.out.emplace(is_server ? keys.server_seal : keys.client_seal);
  out.in.emplace(is_server ? keys.client_seal : keys.server_seal);
  return out;
}

}  // namespace

HandshakeKeys::HandshakeKeys(const Credentials& own, std::string_view hello,
                             std::string_view challenge) {
  auto said = Writer().string("trireme control 3").string(hello).string(challenge).take();
  auto secret = own.secret ? own.secret->bytes() : kPublicKey;
  auto extracted = hkdf_extract(sha256(said), secret);
  client_proof = hkdf_expand(extracted, "client proof");
  server_proof = hkdf_expand(extracted, "server proof");
  client_seal = hkdf_expand(extracted, "client seal");
  server_seal = hkdf_expand(extracted, "server seal");
  OPENSSL_cleanse(extracted.data(), extracted.size());
}

HandshakeKeys::~HandshakeKeys() {
  for (auto* key : {&client_proof, &server_proof, &client_seal, &server_seal})
    OPENSSL_cleanse(key->data(), key->size());
}

std::optional<Refused> read_refusal(const Frame& frame) {
  if (frame.type != kRefused) return std::nullopt;
  Reader in(frame.payload, "refusal");
  uint8_t code = in.u8();
  auto text = printable(in.string(kMaxPayloadBefore));
  bool known = code >= 1 && code <= static_cast<uint8_t>(Refusal::busy);
  return Refused{known ? static_cast<Refusal>(code) : Refusal::not_understood, text};
}

ServerHandshake::ServerHandshake(const Credentials& own, uint16_t port) : own_(own), port_(port) {
  check_job_id(own.job_id);
}

ServerHandshake::Step ServerHandshake::refuse(Refusal code, std::string text) {
  text = printable(text);
  auto payload = Writer().u8(static_cast<uint8_t>(code)).string(text).take();
  return {encode_frame(kRefused, payload), false, Refused{code, std::move(text)}};
}

ServerHandshake::Step ServerHandshake::on_frame(const Frame& frame) {
  try {
    if (!challenged() && frame.type == kHello) return on_hello(frame);
    if (challenged() && frame.type == kProof) return on_proof(frame);
    return refuse(Refusal::not_understood,
                  fmt::format("a frame of type {} in the middle of the handshake", frame.type));
  } catch (const Corrupt& error) {
    return refuse(Refusal::not_understood, error.what());
  }
}

ServerHandshake::Step ServerHandshake::on_hello(const Frame& frame) {
  Reader in(frame.payload, "hello");
  uint8_t flags = in.u8();
  auto job_id = in.string(kMaxJobId);
  in.raw(kNonceBytes);
  in.finish();
  if (job_id != own_.job_id)
    return refuse(Refusal::other_job,
                  fmt::format("job '{}' is served here, not '{}'", own_.job_id, job_id));
  if (own_.secret && !(flags & kHasSecret))
    return refuse(Refusal::secret_required, "this job has a secret, and the hello did not use it");
  if (!own_.secret && (flags & kHasSecret))
    return refuse(Refusal::no_secret_here, "this job runs without a secret");
  hello_ = encode_frame(frame.type, frame.payload);
  challenge_ = encode_frame(
      kChallenge, Writer().u8(flags_of(own_)).raw(random_bytes(kNonceBytes)).u16(port_).bytes());
  return {challenge_, false, {}};
}

ServerHandshake::Step ServerHandshake::on_proof(const Frame& frame) {
  HandshakeKeys keys(own_, hello_, challenge_);
  if (!same_bytes(frame.payload, keys.client_proof))
    return refuse(Refusal::wrong_secret, "wrong secret");
  if (own_.secret) session_ = sealed(keys, true);
  return {encode_frame(kWelcome, keys.server_proof), true, {}};
}

ClientHandshake::ClientHandshake(const Credentials& own, std::string server)
    : own_(own), server_(std::move(server)) {
  check_job_id(own.job_id);
  hello_ = encode_frame(
      kHello, Writer().u8(flags_of(own)).string(own.job_id).raw(random_bytes(kNonceBytes)).bytes());
}

void ClientHandshake::say_no(Refusal code, std::string text) {
  done_ = true;
  entry_.refused = Refused{code, std::move(text)};
}

std::string ClientHandshake::on_frame(const Frame& frame) {
  if (auto refused = read_refusal(frame)) {
    say_no(refused->code, std::move(refused->text));
    return "";
  }
  check<Corrupt>(frame.type == (keys_ ? kWelcome : kChallenge),
                 "{} answered with a frame of type {} in the middle of the handshake", server_,
                 frame.type);
  if (!keys_) return on_challenge(frame);
  on_welcome(frame);
  return "";
}

std::string ClientHandshake::on_challenge(const Frame& frame) {
  Reader in(frame.payload, "challenge");
  uint8_t flags = in.u8();
  in.raw(kNonceBytes);
  entry_.port = in.u16();
  in.finish();
  // An honest server has refused already; this one would have us prove our secret to somebody who
  // has none.
  if (own_.secret && !(flags & kHasSecret)) {
    say_no(Refusal::no_secret_here, "it claims to run without a secret");
    return "";
  }
  keys_.emplace(own_, hello_, encode_frame(frame.type, frame.payload));
  return encode_frame(kProof, keys_->client_proof);
}

void ClientHandshake::on_welcome(const Frame& frame) {
  if (!same_bytes(frame.payload, keys_->server_proof))
    return say_no(Refusal::wrong_secret, "it did not prove that it knows the secret");
  if (own_.secret) entry_.session = sealed(*keys_, false);
  done_ = true;
}

Entry try_authenticate(Socket& socket, const Credentials& own, Deadline deadline) {
  ClientHandshake handshake(own, socket.peer());
  socket.send_all(handshake.hello(), deadline);
  while (!handshake.done())
    socket.send_all(handshake.on_frame(recv_frame(socket, kMaxPayloadBefore, deadline)), deadline);
  return handshake.take_entry();
}

Session authenticate_as_client(Socket& socket, const Credentials& own, Deadline deadline) {
  auto entry = try_authenticate(socket, own, deadline);
  if (entry.refused) throw UsageError(refusal_sentence(socket.peer(), *entry.refused, false));
  return std::move(entry.session);
}

Session authenticate_as_server(Socket& socket, const Credentials& own, Deadline deadline) {
  ServerHandshake handshake(own);
  while (true) {
    ServerHandshake::Step step;
    try {
      step = handshake.on_frame(recv_frame(socket, kMaxPayloadBefore, deadline));
    } catch (const Corrupt& error) {
      step = ServerHandshake::refuse(Refusal::not_understood, error.what());
    } catch (const Mismatch& error) {
      step = ServerHandshake::refuse(Refusal::not_understood, error.what());
    }
    socket.send_all(step.reply, deadline);
    if (step.refused) throw UsageError(refusal_sentence(socket.peer(), *step.refused, true));
    if (step.done) return handshake.take_session();
  }
}

std::string refusal_sentence(const std::string& other, const Refused& refused, bool we_refused) {
  std::string start =
      we_refused ? fmt::format("refused {}: ", other) : fmt::format("refused by {}: ", other);
  switch (refused.code) {
    case Refusal::wrong_secret:
      return start +
             "wrong secret. Give every rank of the job the same secret (TRIREME_SECRET_FILE, or "
             "~/.config/trireme/secret); if it is the same, something between the two alters the "
             "traffic";
    case Refusal::secret_required:
      return start +
             "the job has a secret, and this rank does not have it. Set TRIREME_SECRET_FILE on "
             "every rank, or "
             "TRIREME_INSECURE=1 on every rank";
    case Refusal::no_secret_here:
      return start +
             "this rank has a secret, and the job's store runs without one. Set "
             "TRIREME_SECRET_FILE on every "
             "rank, or TRIREME_INSECURE=1 on every rank";
    case Refusal::other_job:
      return start + "another job is served there (" + refused.text +
             "). Give the jobs different ports, or check the job id";
    case Refusal::busy:
      return start + refused.text + ". Try again";
    case Refusal::not_understood:
      break;
  }
  return start + refused.text + ". Run the same release of Trireme on every rank";
}

}  // namespace trireme::net
