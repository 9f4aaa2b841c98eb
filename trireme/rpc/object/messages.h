// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"
#include "trireme/rpc/object/ledger.h"
#include "trireme/rpc/remote.h"

// What workers say to each other about references: ordinary calls, of names that no program can
// give to its functions.
namespace trireme::rpc::detail {

struct ClaimObject {
  static constexpr const char* kName = "trireme.rref.claim";
  static constexpr void (*kFunction)(const ObjectId& object, uint64_t life) = nullptr;
};
struct ReleaseObject {
  static constexpr const char* kName = "trireme.rref.release";
  static constexpr void (*kFunction)(const ObjectId& object, uint64_t life) = nullptr;
};
struct SettleReference {
  static constexpr const char* kName = "trireme.rref.settle";
  static constexpr void (*kFunction)(uint64_t token) = nullptr;
};
/// Those that were not read.
struct WithdrawReferences {
  static constexpr const char* kName = "trireme.rref.withdraw";
  static constexpr std::vector<uint64_t> (*kFunction)(const std::vector<uint64_t>& tokens,
                                                      bool may_run) = nullptr;
};

/// Makes an object of what a function returns: the head of every maker, the function's name and
/// signature, its arguments.
inline constexpr const char* kMakeByFunction = "trireme.rref.make";
/// The value of an object: its id, its type.
inline constexpr const char* kFetch = "trireme.rref.fetch";
inline const std::string& raw_signature() {
  static const std::string text = "as the arguments say";
  return text;
}

/// At the head of what makes an object.
struct MakerHead {
  ObjectId object;
  uint64_t life = 0;
  std::string where;
  TRIREME_FIELDS(object, life, where)
};

/// A reference as a value of a call (docs/rpc.md has its bytes).
struct PassedReference {
  ObjectId object;
  uint64_t token = 0;
  std::string owner;  // the worker's name
  std::string where;  // the line on which it was made
};
inline constexpr size_t kMostWhere = 256;  // bytes of such a line

TRIREME_API void put_reference(encoding::Writer& writer, const PassedReference& passed);
/// None: it refers to nothing. Corrupt: an owner or a number that there cannot be.
TRIREME_API std::optional<PassedReference> get_reference(encoding::Reader& reader);

}  // namespace trireme::rpc::detail
