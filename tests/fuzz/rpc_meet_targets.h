// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/clock.h"
#include "trireme/base/encoding.h"
#include "trireme/base/error.h"
#include "trireme/net/endpoint.h"
#include "trireme/rpc/agent/registry.h"
#include "trireme/store/memory_store.h"

// What workers write into the job's store so that others find them.
namespace trireme::fuzz {

/// Values of keys: a byte for the key, two for the length of its value, the value.
inline void rpc_members(std::string_view bytes) {
  static constexpr const char* kKeys[] = {"members", "member/1", "member/2", "name/a",
                                          "rank/0",  "done/1",   "done/2",   "name/b"};
  const auto store = std::make_shared<MemoryStore>();
  while (bytes.size() >= 3) {
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
    const std::string key = std::string("rpc/0/") + kKeys[byte(0) % 8];
    const size_t length = byte(1) | byte(2) << 8;
    bytes.remove_prefix(3);
    store->set(key, std::string(bytes.substr(0, length)));
    bytes.remove_prefix(std::min(length, bytes.size()));
  }
  const auto refused = [](auto look) {
    try {
      look();
    } catch (const Error&) {
    }
  };
  rpc::detail::Registry registry(std::shared_ptr<Store>(store->clone(Deadline::never())), 0);
  const Deadline now = Deadline::after(Duration::zero());
  const auto reach = [](const rpc::detail::Member& member) {
    for (const auto& [kind, address] : member.addresses)
      if (kind == "tcp") net::Endpoint::parse(address);
  };
  refused([&] { reach(registry.find("a", now)); });
  refused([&] { reach(registry.find(0, now)); });
  refused([&] {
    if (const auto member = registry.find_number(1)) reach(*member);
  });
  refused([&] { registry.present(); });
  refused([&] { registry.wait_for_all(2, now); });
  refused([&] { registry.new_number(); });
  refused([&] { registry.join({.number = 3, .name = "b", .rank = 0}, true); });
}

}  // namespace trireme::fuzz
