// SPDX-License-Identifier: Apache-2.0
#include "trireme/net/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "trireme/base/check.h"

namespace trireme::net {

std::string sha256(std::string_view bytes) {
  std::string out(kHashBytes, '\0');
  unsigned int size = kHashBytes;
  bool done = EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()),
                         &size, EVP_sha256(), nullptr) == 1;
  check<ResourceError>(done && size == kHashBytes, "SHA-256 is not available in this OpenSSL");
  return out;
}

std::string hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string out(kHashBytes, '\0');
  unsigned int size = kHashBytes;
  auto* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                    reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                    reinterpret_cast<unsigned char*>(out.data()), &size);
  check<ResourceError>(done && size == kHashBytes, "HMAC-SHA256 is not available in this OpenSSL");
  return out;
}

std::string hkdf_extract(std::string_view salt, std::string_view secret) {
  return hmac_sha256(salt, secret);
}

std::string hkdf_expand(std::string_view extracted, std::string_view label) {
  return hmac_sha256(extracted, std::string(label) + '\1');
}

bool same_bytes(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace trireme::net
