// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <variant>

#include "trireme/base/check.h"

namespace trireme::net {
namespace {

enum Type : uint16_t { kHello = 1, kChallenge = 2, kProof = 3, kWelcome = 4, kRefused = 5 };
constexpr uint8_t kHasSecret = 1;
constexpr size_t kNonceBytes = 32;
constexpr size_t kMacBytes = 32;
constexpr std::string_view kPublicKey = "trireme: no secret, everybody knows this key";

std::string new_nonce() {
  std::string nonce(kNonceBytes, '\0');
  check<ResourceError>(RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), kNonceBytes) == 1,
                       "the system gives no random numbers");
  return nonce;
}

std::string proof_of(const Credentials& own, std::string_view role, std::string_view client_nonce,
                     std::string_view server_nonce) {
  std::string_view key = own.secret ? own.secret->bytes() : kPublicKey;
  std::string said = Writer()
                         .string("trireme control 1")
                         .string(role)
                         .string(own.job_id)
                         .string(client_nonce)
                         .string(server_nonce)
                         .take();
  std::string mac(kMacBytes, '\0');
  unsigned int size = kMacBytes;
  auto* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                    reinterpret_cast<const unsigned char*>(said.data()), said.size(),
                    reinterpret_cast<unsigned char*>(mac.data()), &size);
  check<ResourceError>(done && size == kMacBytes, "HMAC-SHA256 is not available in this OpenSSL");
  return mac;
}

bool same_bytes(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

/// Text that a stranger sent, fit to be printed.
std::string printable(std::string_view text) {
  std::string out(text.substr(0, 400));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 32 || static_cast<unsigned char>(c) > 126) c = '?';
  return out;
}

void check_job_id(const std::string& job_id) {
  check<UsageError>(job_id.size() <= kMaxJobId, "a job id of {} bytes; at most {}", job_id.size(),
                    kMaxJobId);
}

uint8_t flags_of(const Credentials& own) { return own.secret ? kHasSecret : 0; }

Refused read_refused(const Frame& frame) {
  Reader in(frame.payload, "refusal");
  uint8_t code = in.u8();
  auto text = printable(in.string(kMaxPayloadBefore));
  bool known = code >= 1 && code <= static_cast<uint8_t>(Refusal::busy);
  return {known ? static_cast<Refusal>(code) : Refusal::not_understood, text};
}

}  // namespace

ServerHandshake::ServerHandshake(const Credentials& own) : own_(own) { check_job_id(own.job_id); }

ServerHandshake::Step ServerHandshake::refuse(Refusal code, std::string text) {
  text = printable(text);
  auto payload = Writer().u8(static_cast<uint8_t>(code)).string(text).take();
  return {encode_frame(kRefused, payload), false, Refused{code, std::move(text)}};
}

ServerHandshake::Step ServerHandshake::on_frame(const Frame& frame) {
  try {
    if (!challenged_ && frame.type == kHello) return on_hello(frame);
    if (challenged_ && frame.type == kProof) return on_proof(frame);
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
  client_nonce_ = in.raw(kNonceBytes);
  in.finish();
  if (job_id != own_.job_id)
    return refuse(Refusal::other_job,
                  fmt::format("job '{}' is served here, not '{}'", own_.job_id, job_id));
  if (own_.secret && !(flags & kHasSecret))
    return refuse(Refusal::secret_required, "this job has a secret and the hello came without one");
  if (!own_.secret && (flags & kHasSecret))
    return refuse(Refusal::no_secret_here, "this job runs without a secret");
  server_nonce_ = new_nonce();
  challenged_ = true;
  auto payload = Writer().u8(flags_of(own_)).raw(server_nonce_).take();
  return {encode_frame(kChallenge, payload), false, {}};
}

ServerHandshake::Step ServerHandshake::on_proof(const Frame& frame) {
  Reader in(frame.payload, "proof");
  auto mac = in.raw(kMacBytes);
  in.finish();
  if (!same_bytes(mac, proof_of(own_, "client", client_nonce_, server_nonce_)))
    return refuse(Refusal::wrong_secret, "wrong secret");
  return {encode_frame(kWelcome, proof_of(own_, "server", client_nonce_, server_nonce_)), true, {}};
}

std::optional<Refused> try_authenticate(Socket& socket, const Credentials& own, Deadline deadline) {
  check_job_id(own.job_id);
  auto expect = [&](uint16_t type) -> std::variant<Frame, Refused> {
    Frame frame = recv_frame(socket, kMaxPayloadBefore, deadline);
    if (frame.type == kRefused) return read_refused(frame);
    check<Corrupt>(frame.type == type,
                   "{} answered with a frame of type {} in the middle of the handshake",
                   socket.peer(), frame.type);
    return frame;
  };

  std::string client_nonce = new_nonce();
  auto hello = Writer().u8(flags_of(own)).string(own.job_id).raw(client_nonce).take();
  send_frame(socket, kHello, hello, deadline);

  auto challenge = expect(kChallenge);
  if (auto* refused = std::get_if<Refused>(&challenge)) return *refused;
  Reader in(std::get<Frame>(challenge).payload, "challenge");
  uint8_t flags = in.u8();
  std::string server_nonce(in.raw(kNonceBytes));
  in.finish();
  // An honest server has refused already; this one would have us prove our secret to somebody who
  // has none.
  if (own.secret && !(flags & kHasSecret))
    return Refused{Refusal::no_secret_here, "it claims to run without a secret"};
  send_frame(socket, kProof, proof_of(own, "client", client_nonce, server_nonce), deadline);

  auto welcome = expect(kWelcome);
  if (auto* refused = std::get_if<Refused>(&welcome)) return *refused;
  if (!same_bytes(std::get<Frame>(welcome).payload,
                  proof_of(own, "server", client_nonce, server_nonce)))
    return Refused{Refusal::wrong_secret, "it did not prove that it knows the secret"};
  return std::nullopt;
}

void authenticate_as_client(Socket& socket, const Credentials& own, Deadline deadline) {
  if (auto refused = try_authenticate(socket, own, deadline))
    throw UsageError(refusal_sentence(socket.peer(), *refused, false));
}

void authenticate_as_server(Socket& socket, const Credentials& own, Deadline deadline) {
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
    if (step.done) return;
  }
}

std::string refusal_sentence(const std::string& other, const Refused& refused, bool we_refused) {
  std::string start =
      we_refused ? fmt::format("refused {}: ", other) : fmt::format("refused by {}: ", other);
  switch (refused.code) {
    case Refusal::wrong_secret:
      return start +
             "wrong secret. Give every rank of the job the same secret (TRIREME_SECRET_FILE, or "
             "~/.config/trireme/secret)";
    case Refusal::secret_required:
      return start +
             "the job has a secret, and this rank came without one. Set TRIREME_SECRET_FILE on "
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
