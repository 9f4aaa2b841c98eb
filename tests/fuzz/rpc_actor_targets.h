// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/captured_log.h"
#include "tests/support/pretend_call.h"
#include "trireme/rpc/actor/actor.h"
#include "trireme/rpc/actor/turns.h"

// What other workers send to a worker on which actors live.
namespace trireme::fuzz {

/// Futures that an actor has returned.
using Promises = std::vector<rpc::Promise<int64_t>>;
inline Promises& promises_of_actors() {
  thread_local Promises promises;
  return promises;
}

struct FuzzedActor {
  explicit FuzzedActor(int64_t first) : value(first) {
    if (first < 0) throw UsageError("an actor begins at 0");
  }
  int64_t add(int64_t more) { return value = value % 1000 + more % 1000; }
  void fails(const std::string& text) { throw UsageError(text); }
  rpc::Future<int64_t> later(const std::vector<int64_t>&) {
    return promises_of_actors().emplace_back().future();
  }
  int64_t value;
};
TRIREME_ACTOR(FuzzedActor, int64_t);
TRIREME_REMOTE(fuzzed_add, &FuzzedActor::add);
TRIREME_REMOTE(fuzzed_fails, &FuzzedActor::fails);
TRIREME_REMOTE(fuzzed_later, &FuzzedActor::later);

/// Calls, one behind the other: a byte for the method, a byte that says within what it is made and
/// what happens before it, a byte for the length of its arguments, these.
inline void rpc_actor_messages(std::string_view bytes) {
  const testing::CapturedLog log;  // of actors that fail
  const auto offer = rpc::offer_actor<FuzzedActor, fuzzed_add, fuzzed_fails, fuzzed_later>();
  const auto executor = std::make_shared<testing::PretendExecutor>();
  const auto line = std::make_shared<testing::PretendLine>("trainer0", 2, executor);
  std::vector<std::shared_ptr<testing::PretendCall>> calls;
  promises_of_actors().clear();
  while (bytes.size() >= 3) {
    const auto number = [&](size_t at) { return static_cast<uint8_t>(bytes[at]); };
    const auto& method = offer.methods[number(0) % offer.methods.size()];
    const uint8_t how = number(1), length = number(2);
    bytes.remove_prefix(3);
    const std::string arguments(bytes.substr(0, length));
    bytes.remove_prefix(arguments.size());
    std::vector<rpc::wire::Link> chain;
    if (how & 1)
      chain.push_back(
          {"server0", rpc::detail::turn_text("add", {how / 32u % 2, uint64_t{how} / 64})});
    if (how & 2) chain.push_back({"trainer0", arguments});
    chain.push_back({"server0", method.name});
    calls.push_back(
        std::make_shared<testing::PretendCall>(line, executor, std::move(chain), arguments));
    method.run(calls.back());
    if (how & 4) executor->run_all();
    if (how & 8) calls[how % calls.size()]->stop();
    if (how & 16 && !promises_of_actors().empty()) promises_of_actors()[0].set(1);
  }
  executor->run_all();
  for (auto& promise : std::exchange(promises_of_actors(), {})) promise.set(2);
  executor->run_all();
  for (const auto& call : calls) {
    // Where an actor is constructed its call lasts as long.
    if (call->method() == offer.methods[0].name) call->stop();
  }
  executor->run_all();
  for (auto& promise : std::exchange(promises_of_actors(), {})) promise.set(3);
  executor->run_all();
  for (const auto& call : calls)
    if (!call->answered()) throw std::logic_error("a message to an actor is never answered");
}

}  // namespace trireme::fuzz
