// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/export.h"

// What etcd 3.4 and later are asked and answer at their JSON gateway. Keys and values travel as
// base64, whole numbers as texts, and what is 0, false or empty is left out. Pure. Answers are a
// stranger's bytes: Corrupt says what is wrong with one.
namespace trireme::etcd {

struct Message {
  const char* path;  // "/v3/kv/range"
  std::string json;
};
TRIREME_API Message get_message(std::string_view key);
/// If there is no such key, it is put, under the lease; else what stands there is answered.
TRIREME_API Message put_if_absent_message(std::string_view key, std::string_view value,
                                          int64_t lease);
TRIREME_API Message grant_message(int64_t seconds);
TRIREME_API Message keep_alive_message(int64_t lease);
TRIREME_API Message revoke_message(int64_t lease);

/// nullopt: there is no such key.
TRIREME_API std::optional<std::string> read_value(const std::string& json);
/// nullopt: it was put.
TRIREME_API std::optional<std::string> read_put_if_absent(const std::string& json);
/// The lease's id.
TRIREME_API int64_t read_grant(const std::string& json);
/// Whether the lease is still there.
TRIREME_API bool read_keep_alive(const std::string& json);

/// An answer that is none of the above.
struct Refusal {
  int code = -1;  // gRPC's; -1: the answer is not etcd's
  std::string text;
};
TRIREME_API Refusal read_refusal(const std::string& json);
inline constexpr int kInvalid = 3, kNotFound = 5, kUnavailable = 14;

}  // namespace trireme::etcd
