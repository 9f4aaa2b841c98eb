// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "trireme/rpc/autograd/backward_part.h"
#include "trireme/rpc/autograd/calls.h"
#include "trireme/rpc/autograd/local_context.h"
#include "trireme/rpc/codec/tensor.h"
#include "trireme/rpc/rpc.h"

namespace trireme::rpc::autograd {

/// The contexts that a worker has, and what other workers call on it. Threads: any.
class Contexts final : public rpc::detail::Carrier, public std::enable_shared_from_this<Contexts> {
 public:
  ~Contexts() override;

  void joined(const std::string& name, int64_t member,
              const std::shared_ptr<rpc::detail::Executor>& executor) override;
  Arrived arrived(const rpc::wire::Context& said,
                  const std::shared_ptr<rpc::detail::Line>& from) override;
  void lost(const rpc::detail::Line& line) override;

  /// A new one, of this worker.
  std::shared_ptr<LocalContext> begin();
  /// UsageError: it is over, or was never here.
  std::shared_ptr<LocalContext> find(const ContextId& id) const;
  /// Ends it here, and on the workers that were called within it from here.
  void end(const ContextId& id);
  int64_t count() const;
  std::shared_ptr<rpc::detail::Executor> executor() const;
  /// Runs this on a thread of its own, which may wait.
  void spawn(std::function<void()> task);

  // What other workers call.
  std::vector<Found> look(const ContextId& id, uint64_t backward, bool accumulate,
                          const std::vector<Pair>& sent);
  Future<void> run(rpc::Call& call, const ContextId& id, uint64_t backward,
                   const BackwardKind& kind, const std::vector<PassOrder>& passes);
  void came(rpc::Call& call, const ContextId& id, uint64_t backward, const Pair& pair,
            const std::vector<at::Tensor>& gradients);
  void give_up(const ContextId& id, uint64_t backward, const std::string& why);
  void ended(const ContextId& id) { end(id); }

 private:
  struct Helper {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> done;
  };
  std::shared_ptr<LocalContext> take(const ContextId& id);

  mutable std::mutex mutex_;
  std::string name_;
  int64_t member_ = 0;
  std::weak_ptr<rpc::detail::Executor> executor_;
  uint64_t begun_ = 0;
  std::map<ContextId, std::shared_ptr<LocalContext>> contexts_;
  // Calls that were under way may come late; these are the last ones.
  std::set<ContextId> over_;
  std::deque<ContextId> over_in_order_;
  std::list<Helper> helpers_;
};

// Names that TRIREME_REMOTE cannot give.
struct LookBehind {
  static constexpr const char* kName = "trireme.autograd.look";
  static constexpr auto kFunction = &Contexts::look;
};
struct RunPasses {
  static constexpr const char* kName = "trireme.autograd.run";
  static constexpr auto kFunction = &Contexts::run;
};
struct GradientsCame {
  static constexpr const char* kName = "trireme.autograd.came";
  static constexpr auto kFunction = &Contexts::came;
};
struct GiveUp {
  static constexpr const char* kName = "trireme.autograd.give_up";
  static constexpr auto kFunction = &Contexts::give_up;
};
struct ContextEnded {
  static constexpr const char* kName = "trireme.autograd.ended";
  static constexpr auto kFunction = &Contexts::ended;
};

}  // namespace trireme::rpc::autograd
