// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/process/process_mark.h"
#include "trireme/rpc/agent/core.h"
#include "trireme/rpc/agent/registry.h"
#include "trireme/rpc/agent/session.h"
#include "trireme/rpc/options.h"

namespace trireme::rpc::detail {

/// A worker: its hubs, its sessions with others, its crew.
class Agent : public std::enable_shared_from_this<Agent> {
 public:
  /// `process_rank`: Options::rank is the process's, and may be another worker's of it.
  explicit Agent(Options options, bool process_rank = false);
  /// Joins the job. Once.
  void start();
  const std::shared_ptr<Objects>& objects() const { return core_->objects; }
  /// shutdown() at once, where that was not called.
  ~Agent();

  const std::string& name() const { return core_->name; }
  const Options& options() const { return options_; }
  const std::shared_ptr<Carrier>& carrier() const { return core_->carrier; }
  std::shared_ptr<Line> line(const std::string& peer, Deadline deadline);
  std::shared_ptr<Line> line(int rank, Deadline deadline);
  /// CallLost: the worker with this number is no more.
  std::shared_ptr<Line> line_to(int64_t member, const std::string& name, Deadline deadline);
  std::vector<std::string> workers();
  const Core& core() const { return *core_; }
  int threads() const { return core_->crew->threads(); }
  std::vector<MethodMetrics> metrics() const { return core_->counts.now(); }
  void shutdown(const ShutdownOptions& options);

 private:
  /// Sessions that can be used to call, by their peer's number; shared with hubs that accept.
  struct Table {
    std::mutex mutex;
    bool closed = false;
    std::vector<std::shared_ptr<Session>> all;
    std::map<int64_t, std::shared_ptr<Session>> by_member;
    std::set<int64_t> opening;  // to which a thread is opening one
    std::condition_variable opened;
  };

  static bool keep(Table& table, const std::shared_ptr<Session>& session);
  static void greeted(Table& table, const std::shared_ptr<Session>& session);
  std::shared_ptr<Session> known(int64_t member);
  std::shared_ptr<Line> session_to(const Member& member, Deadline deadline);
  std::shared_ptr<Session> opened(const Member& member, Deadline deadline);
  void end_opening(int64_t member);
  std::shared_ptr<Session> self();
  std::vector<std::shared_ptr<Session>> sessions();
  void leave_all(const std::string& why);

  const Options options_;
  const bool process_rank_;
  const ProcessMark made_in_;
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Table> table_;
  channel::Peer identity_;
  Member member_;
  std::unique_ptr<Registry> registry_;
  std::vector<std::shared_ptr<channel::Hub>> hubs_;
  std::mutex shutdown_mutex_;
  bool shut_down_ = false;
};

}  // namespace trireme::rpc::detail
