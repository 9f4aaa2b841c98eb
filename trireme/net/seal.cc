// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/seal.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/net/bytes.h"
#include "trireme/net/frame.h"
#include "trireme/net/hmac.h"

namespace trireme::net {
namespace {

const unsigned char* unsigned_of(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

void Seal::Free::operator()(evp_mac_ctx_st* context) const { EVP_MAC_CTX_free(context); }

Seal::Seal(std::string_view key) {
  EVP_MAC* hmac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  context_.reset(hmac ? EVP_MAC_CTX_new(hmac) : nullptr);
  EVP_MAC_free(hmac);  // the context holds it
  char digest[] = "SHA256";
  OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                             OSSL_PARAM_construct_end()};
  check<ResourceError>(
      context_ && EVP_MAC_init(context_.get(), unsigned_of(key), key.size(), parameters) == 1,
      "HMAC-SHA256 is not available in this OpenSSL");
}

Seal::Seal(Seal&&) noexcept = default;
Seal& Seal::operator=(Seal&&) noexcept = default;
Seal::~Seal() = default;

std::string Seal::tag(Part part, std::string_view header, std::string_view payload) {
  auto* context = context_.get();
  auto start = Writer().u64(number_).u8(static_cast<uint8_t>(part)).take();
  unsigned char out[kHashBytes];
  size_t size = 0;
  // No key: the one that it has, from the start.
  bool done =
      EVP_MAC_init(context, nullptr, 0, nullptr) == 1 &&
      EVP_MAC_update(context, unsigned_of(start), start.size()) == 1 &&
      EVP_MAC_update(context, unsigned_of(header), header.size()) == 1 &&
      (payload.empty() || EVP_MAC_update(context, unsigned_of(payload), payload.size()) == 1) &&
      EVP_MAC_final(context, out, &size, sizeof out) == 1;
  check<ResourceError>(done && size == sizeof out, "HMAC-SHA256 failed in OpenSSL");
  return std::string(reinterpret_cast<char*>(out), kTagBytes);
}

std::string Seal::sign(std::string frame) {
  auto header = std::string_view(frame).substr(0, kFrameHeaderBytes);
  auto payload = std::string_view(frame).substr(kFrameHeaderBytes);
  auto first = tag(Part::header, header, {});
  auto last = tag(Part::whole, header, payload);
  ++number_;
  frame.reserve(frame.size() + 2 * kTagBytes);
  frame.insert(kFrameHeaderBytes, first);
  frame += last;
  return frame;
}

void Seal::check_tag(Part part, std::string_view header, std::string_view payload,
                     std::string_view tag) {
  if (!same_bytes(tag, this->tag(part, header, payload))) refuse();
}

void Seal::refuse() const {
  fail<Corrupt>(
      "frame {} after the handshake is not what the other end sent: something between the two "
      "altered it, or inserted, repeated or removed frames",
      number_ + 1);
}

void Seal::check_header(std::string_view header, std::string_view tag) {
  check_tag(Part::header, header, {}, tag);
}

void Seal::check_frame(std::string_view header, std::string_view payload, std::string_view tag) {
  check_tag(Part::whole, header, payload, tag);
  ++number_;
}

}  // namespace trireme::net
