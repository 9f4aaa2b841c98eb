// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "trireme/rpc/actor/mailbox.h"
#include "trireme/rpc/actor/place.h"

namespace trireme::rpc::detail {

/// What stands before the constructor's arguments in the call that an actor lives as long as.
struct SpawnHead {
  uint64_t actor = 0;
  std::string group = {};
  int32_t rank = 0, size = 1;
  int32_t restarts = 0;  // before this life
  OnError on_error = OnError::keep;
  int32_t most_restarts = 0;
  int64_t within_ns = 0;
  TRIREME_FIELDS(actor, group, rank, size, restarts, on_error, most_restarts, within_ns)
};

/// The actors of one class that live at a worker: behind what it offers. Threads: any.
class TRIREME_API ActorHost : public std::enable_shared_from_this<ActorHost> {
 public:
  /// Constructs the object from the arguments, again and again.
  using Make = std::function<std::shared_ptr<void>(const ActorPlace& place)>;
  using MakeFrom = Make (*)(encoding::Reader arguments);

  explicit ActorHost(std::string type) : type_(std::move(type)) {}
  /// The handlers of methods in order: they answer what is wrong with a call, and throw nothing.
  void spawn(const std::shared_ptr<Answering>& call, MakeFrom make_from);
  void put(const std::shared_ptr<Answering>& call, Mailbox::Run run);
  void waited_for(const std::shared_ptr<Answering>& call);

 private:
  std::shared_ptr<Mailbox> find(uint64_t actor);

  const std::string type_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<Mailbox>> actors_;
};

}  // namespace trireme::rpc::detail
