// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/net/frame.h"

// Requests and replies of the store, one frame each (net/frame.h), after the handshake
// (net/auth.h). A client sends its next request when it has the reply to the last.
//   request  type = Op: timeout_ms u64, delta i64, keys (count u32, strings), value string,
//            expected string
//   reply    type = Status: number i64, value string, keys (count u32, strings)
// Fields that an operation does not use are empty.
namespace trireme::detail {

enum class Op : uint16_t {
  set = 16,
  get,  // waits
  try_get,
  add,
  compare_set,
  wait,
  missing,
  erase,
  count,     // keys[0]: the prefix
  set_will,  // keys[0] becomes `value` when this connection ends without a goodbye
  clear_will,
  goodbye,  // no reply: the server drops the will and closes
};

enum class Status : uint16_t {
  ok = 64,
  absent,          // get, wait: `keys` did not come in time; try_get: no such key
  usage_error,     // `value` says what is wrong
  resource_error,  // `value` says what ran out
};

struct Request {
  Op op = Op::set;
  uint64_t timeout_ms = 0;  // kNoTimeout: none
  int64_t delta = 0;
  std::vector<std::string> keys;
  std::string value;
  std::string expected;
  bool operator==(const Request&) const = default;
};
inline constexpr uint64_t kNoTimeout = UINT64_MAX;

struct Reply {
  Status status = Status::ok;
  int64_t number = 0;
  std::string value;
  std::vector<std::string> keys;
  bool operator==(const Reply&) const = default;
};

std::string encode(const Request& request);  // a whole frame
std::string encode(const Reply& reply);
Request decode_request(const net::Frame& frame);  // Corrupt for anything else
Reply decode_reply(const net::Frame& frame);

}  // namespace trireme::detail
