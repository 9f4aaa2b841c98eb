// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/channel/channel.h"
#include "trireme/rpc/agent/call_tally.h"
#include "trireme/rpc/agent/core.h"
#include "trireme/rpc/agent/id_window.h"
#include "trireme/rpc/agent/pooled_map.h"
#include "trireme/rpc/method.h"
#include "trireme/rpc/wire/messages.h"

// One channel to another worker: our calls that are not answered, and its. Either end calls.
namespace trireme::rpc::detail {

class IncomingCall;

class Session final : public channel::Receiver,
                      public Line,
                      public Canceller,
                      public std::enable_shared_from_this<Session> {
 public:
  /// More calls that wait for their handlers are refused. A worker of ours stops far below it.
  static constexpr size_t kMostIncoming = 65536;

  /// `greeted`: called with this once the peer has said hello, on a thread that serves.
  Session(std::shared_ptr<Core> core, std::string peer, int road,
          std::function<void(const std::shared_ptr<Session>&)> greeted = {});
  ~Session() override;

  /// Says hello. Once, soon after it was made.
  void attach(std::shared_ptr<channel::Channel> channel);
  /// Waits for the peer's hello. CallLost, Timeout, Mismatch (another version).
  void wait_for_hello(Deadline deadline);
  /// After that.
  int64_t member() const override { return theirs_.member; }
  bool offers(const std::string& method) const override;
  const std::shared_ptr<Carrier>& carrier() const override { return core_->carrier; }
  /// Calls can be made.
  bool open() const override;
  /// The channel is closed.
  bool ended() const;
  /// Says goodbye and closes.
  void leave(const std::string& why);
  /// Closes, and what waits fails.
  void break_off(const std::string& why);
  /// Tells the handlers of its calls to stop.
  void stop_handlers();
  /// Methods of its calls whose handlers run.
  std::vector<std::string> handlers() const;

  const std::string& peer() const override { return peer_; }
  const std::shared_ptr<Executor>& executor() const override { return executor_; }
  int road() const override { return road_; }
  std::shared_ptr<Objects> objects() const override { return core_->objects; }
  uint64_t link() const override { return link_; }
  std::shared_ptr<void> empty(uint64_t bytes) override;
  void call(Outgoing outgoing, Deadline deadline) override;

  void cancel(uint64_t id) override { give_up(id, false); }

  void received(channel::Message message) override;
  void closed(const std::string& why) override;

  /// For IncomingCall. False: the channel is closed.
  bool send(std::string bytes, std::vector<encoding::Attachment> bodies = {});
  void answered(uint64_t id);
  const std::shared_ptr<Core>& core() const { return core_; }

 private:
  struct TextHash {  // finds a std::string without making one
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Waiting {
    std::string method;
    std::shared_ptr<FutureCore> future;
    std::function<void(encoding::Reader&)> fill;
    std::shared_ptr<Crossing> crossing;
    std::shared_ptr<Passage> passage;
    Deadlines::Place place;
    uint64_t short_bytes = 0;  // 0: it may travel in chunks
    Duration patience{};
    bool began = false;
    bool standing = false;
    CallTally tally{};
  };

  void on_hello(wire::Hello hello);
  void on_call(wire::Call call, channel::Message message, size_t arguments_at);
  void on_reply(const wire::Reply& reply, channel::Message message, size_t result_at);
  void on_failure(const wire::Failure& failure);
  void on_cancel(uint64_t id);
  void run_in_order();
  std::optional<Waiting> take(uint64_t id);
  CallCounts& counts_of(uint32_t number, const char* method);
  void ended(Waiting& waiting, bool well, uint64_t result_bytes = 0);
  std::shared_ptr<IncomingCall> find(uint64_t id);
  void give_up(uint64_t id, bool late);
  uint32_t number_of(const Outgoing& outgoing);
  void refuse(uint64_t id, const std::string& kind, const std::string& why);
  void end(const std::string& why);

  const std::shared_ptr<Core> core_;
  const std::string peer_;
  const int road_;
  const uint64_t link_;
  const std::shared_ptr<Executor> executor_;
  std::function<void(const std::shared_ptr<Session>&)> on_greeted_;
  const std::shared_ptr<FutureState<void>> greeted_;

  mutable std::mutex mutex_;
  std::shared_ptr<channel::Channel> channel_;
  wire::Hello theirs_;  // const once greeted_ is done
  std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>> numbers_;
  bool closed_ = false, leaves_ = false, heard_ = false, ours_ = false;
  std::string why_;  // it is closed
  uint64_t next_id_ = 0;
  PooledMap<Waiting> waiting_;
  std::vector<CallCounts*> counts_;  // by the peer's numbers; null: of no call yet
  uint64_t short_bytes_ = 0;         // of those that wait
  PooledMap<std::shared_ptr<IncomingCall>> incoming_;
  std::map<uint64_t, std::shared_ptr<IncomingCall>> held_;  // of methods in order
  IdWindow seen_;
};

}  // namespace trireme::rpc::detail
