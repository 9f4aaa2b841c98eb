// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/channel/channel.h"
#include "trireme/rpc/agent/call_tally.h"
#include "trireme/rpc/agent/deadlines.h"
#include "trireme/rpc/method.h"

namespace trireme::rpc::detail {

class Session;

/// A call of another worker, from its arrival to its answer.
class IncomingCall final : public Answering, public std::enable_shared_from_this<IncomingCall> {
 public:
  IncomingCall(std::shared_ptr<Session> session, const Method& method, wire::Call&& call,
               Deadline deadline, channel::Message message, size_t arguments_at);
  ~IncomingCall() override;

  /// Soon after it was made: among the calls of its method.
  void count(CallCounts& counts);
  /// Calls the handler, unless nobody waits any more. A method in order begins when it says so.
  void run();
  /// It has no thread: answered with ResourceError.
  void refuse(const std::string& why);
  /// Nobody waits for its answer any more.
  void stop();
  bool began() const { return began_; }

  encoding::Reader arguments() override;
  std::shared_ptr<Line> line() const override;
  encoding::Writer result() override;
  void reply(encoding::Writer result) override;
  void fail(std::exception_ptr error) override;
  bool begin() override;
  void never_began(std::exception_ptr error) override;
  void on_a_thread(bool nested, std::function<void()> turn,
                   std::function<void(const std::string& why)> refused) override;
  Executor& executor() override;
  std::shared_ptr<Agent> agent() override;

 private:
  friend class Session;
  bool first_answer();
  void answer_failure(std::exception_ptr error, bool began);

  const std::shared_ptr<Session> session_;
  const Method& method_;  // of the core, which the session keeps; not of one that was answered
  const bool standing_;
  const uint64_t id_;
  const size_t arguments_at_;
  const std::optional<wire::Context> context_;
  std::optional<CallTransit> transit_;  // from run() on
  channel::Message message_;
  std::atomic<bool> answered_{false}, began_{false};
  Deadlines::Place ends_{}, tells_{};
  bool has_end_ = false;
  CallTally tally_;
};

}  // namespace trireme::rpc::detail
