// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/base/export.h"

// What two workers say to each other, one message each (docs/rpc.md has the grammar). Pure: bytes
// in, values out. Whoever reads them has checked nothing before, so that every length is compared
// with what is there, and every number that has a limit with its limit.
namespace trireme::rpc::wire {

inline constexpr uint16_t kVersion = 2;
inline constexpr size_t kMaxName = 256;            // of a worker or a method
inline constexpr size_t kMaxSignature = 16 << 10;  // of a method
inline constexpr size_t kMaxMethods = 16384;       // of a worker
inline constexpr size_t kMaxHello = 256 << 10;     // so that nothing overtakes it
inline constexpr size_t kMaxChain = 64;            // calls within calls
inline constexpr size_t kMaxText = 64 << 10;       // of an error
inline constexpr uint64_t kNoBudget = UINT64_MAX;

/// The number of a method is its place in its worker's hello.
struct MethodName {
  std::string name;
  std::string signature;  // "f64(tensor,[i64])": result and arguments, as base/encoding.h says them
  bool operator==(const MethodName&) const = default;
};

/// The first message of each end.
struct Hello {
  std::string worker;
  int64_t member = 0;  // a number that no other worker of this generation ever has
  std::vector<MethodName> methods;
  bool operator==(const Hello&) const = default;
};

/// A call within which another is made.
struct Link {
  std::string worker;  // where it runs
  std::string method;
  bool operator==(const Link&) const = default;
};

/// The context of a distributed backward (rpc/autograd) that a call takes part in.
struct Context {
  int64_t member = 0;    // who began it
  uint64_t number = 0;   // its contexts, counted
  uint64_t message = 0;  // the caller's calls within contexts, counted
  bool operator==(const Context&) const = default;
};

/// The arguments follow the message's head.
struct Call {
  uint32_t method = 0;
  uint64_t id = 0;         // counts the calls of one end of a channel from 0
  uint64_t budget_us = 0;  // microseconds to the deadline as it was sent; kNoBudget: none
  std::vector<Link> chain;
  std::optional<Context> context = {};
  bool operator==(const Call&) const = default;
};

/// The result follows.
struct Reply {
  uint64_t id = 0;
  bool operator==(const Reply&) const = default;
};

struct Failure {
  uint64_t id = 0;
  bool began = false;  // the handler was called
  std::string kind;    // "PeerLost": one of our errors; "": another's
  std::string type;    // of another's: "std::out_of_range"
  std::string text;
  std::string worker;            // where it was thrown
  int32_t rank = -1, peer = -1;  // and what our errors have beside their text
  std::string op;
  int64_t seq = -1;
  bool operator==(const Failure&) const = default;
};

/// The handler was called and takes its time.
struct Began {
  uint64_t id = 0;
  bool operator==(const Began&) const = default;
};

/// The caller does not wait any more.
struct Cancel {
  uint64_t id = 0;
  bool operator==(const Cancel&) const = default;
};

/// This worker leaves, and has answered every call.
struct Goodbye {
  bool operator==(const Goodbye&) const = default;
};

using Message = std::variant<Hello, Call, Reply, Failure, Began, Cancel, Goodbye>;

/// UsageError: a hello beyond one of the limits. What else is too long is cut.
TRIREME_API std::string encode(const Hello& hello);
TRIREME_API std::string encode(const Failure& failure);
TRIREME_API std::string encode(const Began& began);
TRIREME_API std::string encode(const Cancel& cancel);
TRIREME_API std::string encode(const Goodbye& goodbye);
TRIREME_API std::string encode(const Reply& reply);  // the result is appended
/// The arguments are appended. UsageError: a chain longer than kMaxChain, which it shows.
TRIREME_API std::string encode(const Call& call);
/// Writes into what encode(Call) made what is known when it leaves.
TRIREME_API void complete(std::string& call, uint64_t id, uint64_t budget_us);

struct Decoded {
  Message message;
  size_t value_at = 0;  // where the arguments or the result begin
};
/// Corrupt: no message of ours. Mismatch: a hello of another version; names both.
TRIREME_API Decoded decode(std::string_view bytes);

/// "'push' on 'server0' → 'sum' on 'server1'".
TRIREME_API std::string shown(const std::vector<Link>& chain);

}  // namespace trireme::rpc::wire
