// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/error.h"
#include "trireme/rpc/wire/messages.h"

// What another worker says.
namespace trireme::fuzz {

inline void rpc_messages(std::string_view bytes) {
  rpc::wire::Decoded decoded;
  try {
    decoded = rpc::wire::decode(bytes);
  } catch (const Corrupt&) {
    return;
  } catch (const Mismatch&) {
    return;
  }
  const std::string again =
      std::visit([](const auto& said) { return rpc::wire::encode(said); }, decoded.message);
  if (again != bytes.substr(0, decoded.value_at))
    throw std::logic_error("messages are written otherwise than they are read");
  // Arguments of some function, whatever follows.
  using Arguments = std::tuple<std::string, std::vector<std::string>, std::optional<double>,
                               std::map<std::string, std::vector<int64_t>>, bool>;
  const std::string_view value = bytes.substr(decoded.value_at);
  try {
    encoding::Reader reader(value);
    Arguments arguments;
    reader.get(arguments);
    if (!reader.done()) return;
  } catch (const Corrupt&) {
  }
}

}  // namespace trireme::fuzz
