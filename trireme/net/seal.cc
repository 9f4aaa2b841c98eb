// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/seal.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <cstring>
#include <utility>

#include "trireme/base/check.h"
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

void Seal::start(Part part, std::string_view header) {
  unsigned char start[9];
  for (int i = 0; i < 8; ++i) start[i] = static_cast<unsigned char>(number_ >> (8 * i));
  start[8] = static_cast<unsigned char>(part);
  // No key: the one that it has, from the start.
  bool done = EVP_MAC_init(context_.get(), nullptr, 0, nullptr) == 1 &&
              EVP_MAC_update(context_.get(), start, sizeof start) == 1;
  check<ResourceError>(done, "HMAC-SHA256 failed in OpenSSL");
  add(header);
}

void Seal::add(std::string_view piece) {
  bool done =
      piece.empty() || EVP_MAC_update(context_.get(), unsigned_of(piece), piece.size()) == 1;
  check<ResourceError>(done, "HMAC-SHA256 failed in OpenSSL");
}

Seal::Tag Seal::finish() {
  unsigned char out[kHashBytes];
  size_t size = 0;
  bool done = EVP_MAC_final(context_.get(), out, &size, sizeof out) == 1;
  check<ResourceError>(done && size == sizeof out, "HMAC-SHA256 failed in OpenSSL");
  Tag tag;
  std::memcpy(tag.data(), out, tag.size());
  return tag;
}

Seal::Tag Seal::begin(std::string_view header) {
  start(Part::header, header);
  Tag first = finish();
  start(Part::whole, header);
  return first;
}

Seal::Tag Seal::end() {
  Tag last = finish();
  ++number_;
  return last;
}

std::string Seal::sign(std::string frame) {
  Tag first = begin(std::string_view(frame).substr(0, kFrameHeaderBytes));
  add(std::string_view(frame).substr(kFrameHeaderBytes));
  Tag last = end();
  frame.reserve(frame.size() + 2 * kTagBytes);
  frame.insert(kFrameHeaderBytes, first.data(), first.size());
  frame.append(last.data(), last.size());
  return frame;
}

void Seal::refuse() const {
  fail<Corrupt>(
      "frame {} after the handshake is not what the other end sent: something between the two "
      "altered it, or inserted, repeated or removed frames",
      number_ + 1);
}

void Seal::check_header(std::string_view header, std::string_view tag) {
  start(Part::header, header);
  Tag right = finish();
  if (!same_bytes(tag, {right.data(), right.size()})) refuse();
}

void Seal::check_frame(std::string_view header, std::string_view payload, std::string_view tag) {
  expect(header);
  add(payload);
  check_end(tag);
}

void Seal::expect(std::string_view header) { start(Part::whole, header); }

void Seal::check_end(std::string_view tag) {
  Tag right = finish();
  if (!same_bytes(tag, {right.data(), right.size()})) refuse();
  ++number_;
}

}  // namespace trireme::net
