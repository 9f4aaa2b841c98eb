// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/comm/backend.h"
#include "trireme/comm/c10d/world.h"
#include "trireme/comm/dtypes.h"
#include "trireme/comm/flight/recorder.h"
#include "trireme/comm/gloo/collectives.h"
#include "trireme/comm/gloo/connecting.h"
#include "trireme/comm/gloo/messenger.h"
#include "trireme/comm/local/types.h"

namespace trireme::detail {

class GlooBackend final : public Backend {
 public:
  // backend.cc
  GlooBackend(std::shared_ptr<World> world, std::string group, int rank,
              std::vector<int> world_ranks, Duration timeout);
  ~GlooBackend() override;
  void connect(const std::string& host, const std::string& interface, Deadline deadline,
               const Messenger* parent);
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override;

  const std::string& name() const override {
    static const std::string name = "gloo";
    return name;
  }
  bool supports(Collective, at::ScalarType dtype, at::DeviceType device) const override {
    return device == at::kCPU && dtype_of(dtype).has_value();
  }
  bool supports(ReduceOp op, at::ScalarType dtype) const override { return reduces(op, dtype); }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override;

  // calls.cc
  Token post(const Call& call) override;
  bool completed(Token token) override;
  int source(Token token) override;
  int64_t shared_bytes() const override { return 0; }
  /// The group's thread and Gloo's make progress; this only releases what completed calls held.
  void progress() override { reap(); }
  void when_complete(Token token, std::function<void()> done) override;

  // waiting.cc
  void wait(Token token, Duration timeout) override;
  bool on_stall(std::function<void()> look) override {
    look_ = std::move(look);
    return true;
  }

  // failing.cc
  /// This rank does not connect: the others need not wait for it.
  void give_up_connecting(const std::string& why);
  /// Throws the error that ended the group.
  void check_usable();
  void abort(const std::string& why, AbortKind kind) override;

 private:
  enum Kind : uint8_t { collective = 1, message = 2 };
  /// What a rank called, for messages and for what all ranks must agree on.
  struct What : flight::CallWords {
    CallSite site = {};

    uint64_t digest() const;
    std::string text() const;
  };
  using Run = std::function<void(Collectives&, CallKey)>;
  struct Posted {
    uint64_t seq = 0;
    What what;
    at::Tensor in, out;
    std::function<void()> done;
    Run run;
    std::atomic<bool> finished{false};  // of a collective
    Message message;
    int peer = -1;
    char byte = 0;  // used when there are no elements
  };
  struct Words {
    uint64_t seq = 0, digest = 0;
    std::string text;
  };

  // backend.cc
  /// The key under which each rank reports that it is connected or that its attempt failed. A
  /// stopped rank reports neither; a dead one is detected in another way.
  std::string connecting_board() const { return group_ + "/connecting"; }
  std::vector<int> not_connecting();
  /// Removes from `missing` those that only wait for other missing ranks to connect.
  void forget_those_in_vain(std::vector<int>& missing);
  void leave();

  bool others_move() { return progress_group() && progress_group()->progress_others(this); }
  int world_rank(int r) const { return world_ranks_[static_cast<size_t>(r)]; }

  // calls.cc, on the user's thread
  static What what(const Call& call);
  static Run run_of(const Call& call, const What& w);
  Token post_message(const Call& call);
  Token hold(const std::shared_ptr<Posted>& call, Kind kind, int peer);
  void finish(uint64_t number);
  void reap();

  // waiting.cc, on the user's thread
  std::string text_of(const Posted& call) const;
  void wait_for_message(Posted& call, Duration timeout);
  Messenger::Outcome wait_and_look(Posted& call, Deadline deadline);
  void wait_for_collective(const std::shared_ptr<Posted>& call, Duration timeout);
  /// Names the ranks that a message from any rank could have come from.
  std::string candidates(const Posted& call);
  /// Returns what each rank of the group last published, by rank in this group.
  std::map<int, Words> words();
  static std::string last_words(std::map<int, Words>::const_iterator at,
                                const std::map<int, Words>& said);
  std::optional<Failure> compare_words(const Posted& call);
  Failure timed_out(const Posted& call, double seconds);

  // failing.cc, on any thread
  static constexpr const char* kAdvice =
      "Such a rank is stopped, slower than the timeout of the group, or has made other calls";
  /// Stores the first cause of the failure.
  void settle(const Failure& failure);
  [[noreturn]] void fail_now(const Failure& failure);
  /// Returns why a connection broke: what a rank reported, or else what can be seen from here.
  Failure diagnose(const MessageLost& lost, const std::string& where);

  // carrier.cc: the group's thread
  void carry();
  bool carry_one(Posted& call);

  /// A rank that has waited this long publishes what it is waiting for.
  static constexpr Duration kStall = std::chrono::seconds(1);
  static constexpr Duration kLookEvery = std::chrono::milliseconds(200);
  /// How long to wait for the cause of a broken connection.
  static constexpr Duration kPatience = std::chrono::seconds(2);
  static constexpr size_t kManyHeld = 64;

  const std::shared_ptr<World> world_;
  const std::string group_;
  const std::vector<int> world_ranks_;
  uint64_t calls_ = 0, number_ = 0;
  size_t reap_at_ = kManyHeld;
  std::map<uint64_t, int> sources_;  // of messages from any rank
  std::function<void()> look_;       // called when this rank waits for long

  std::mutex mutex_;
  std::condition_variable wake_;  // the group's thread
  std::condition_variable done_;  // signals threads that wait for a call
  std::exception_ptr failure_;
  std::shared_ptr<Connecting> connecting_;  // null once there is a messenger
  std::unique_ptr<Messenger> messenger_;
  std::optional<Collectives> collectives_;            // of the group's thread
  std::map<uint64_t, std::shared_ptr<Posted>> held_;  // of the user's
  std::deque<std::shared_ptr<Posted>> queue_;
  std::shared_ptr<Posted> running_;
  bool stop_ = false;
  std::thread carrier_;
};

}  // namespace trireme::detail
