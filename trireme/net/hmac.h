// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/export.h"

namespace trireme::net {

inline constexpr size_t kHashBytes = 32;

TRIREME_API std::string sha256(std::string_view bytes);
TRIREME_API std::string hmac_sha256(std::string_view key, std::string_view bytes);

/// HKDF with SHA-256 (RFC 5869): one secret in, as many independent keys out as there are labels.
TRIREME_API std::string hkdf_extract(std::string_view salt, std::string_view secret);
/// kHashBytes bytes: the first block.
TRIREME_API std::string hkdf_expand(std::string_view extracted, std::string_view label);

/// In a time that does not tell where they differ.
TRIREME_API bool same_bytes(std::string_view a, std::string_view b);

}  // namespace trireme::net
