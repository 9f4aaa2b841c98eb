// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/rpc/future_core.h"
#include "trireme/rpc/method.h"
#include "trireme/rpc/transit.h"

// Calls of other workers without a worker, a channel or a thread: what a method makes of any bytes.
namespace trireme::testing {

/// Tasks wait until somebody runs them.
class PretendExecutor final : public rpc::detail::Executor {
 public:
  void post(std::function<void()> task) override {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  void wait(rpc::detail::FutureCore&) override { throw ResourceError("nobody may wait here"); }
  void run_all() {
    for (;;) {
      std::function<void()> task;
      {
        std::lock_guard lock(mutex_);
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

 private:
  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_;
};

/// To a worker that answers every call with nothing, which only a call without a result takes.
class PretendLine final : public rpc::detail::Line {
 public:
  PretendLine(std::string peer, int64_t member, std::shared_ptr<rpc::detail::Executor> executor)
      : peer_(std::move(peer)), member_(member), executor_(std::move(executor)) {}

  const std::string& peer() const override { return peer_; }
  int64_t member() const override { return member_; }
  bool open() const override { return true; }
  bool offers(const std::string&) const override { return true; }
  const std::shared_ptr<rpc::detail::Carrier>& carrier() const override { return no_carrier_; }
  const std::shared_ptr<rpc::detail::Executor>& executor() const override { return executor_; }
  int road() const override { return -1; }
  std::shared_ptr<rpc::detail::Objects> objects() const override { return nullptr; }
  uint64_t link() const override { return static_cast<uint64_t>(member_); }
  std::shared_ptr<void> empty(uint64_t bytes) override {
    return {std::malloc(bytes + 1), std::free};
  }
  void call(rpc::detail::Outgoing outgoing, Deadline) override {
    try {
      encoding::Reader nothing({});
      outgoing.fill(nothing);
    } catch (const Error&) {
      outgoing.future->fail(std::current_exception());
    }
  }

 private:
  const std::string peer_;
  const int64_t member_;
  const std::shared_ptr<rpc::detail::Executor> executor_;
  const std::shared_ptr<rpc::detail::Carrier> no_carrier_;
};

/// A call that came, with these bytes as its arguments. It is kept until it is answered.
class PretendCall final : public rpc::detail::Answering {
 public:
  PretendCall(std::shared_ptr<PretendLine> line, std::shared_ptr<PretendExecutor> executor,
              std::vector<rpc::wire::Link> chain, std::string arguments,
              std::vector<encoding::Attachment> attachments = {},
              std::shared_ptr<rpc::detail::Crossing> crossing = {})
      : Answering(line->peer(), std::move(chain), Deadline::never()),
        line_(std::move(line)),
        executor_(std::move(executor)),
        bytes_(std::move(arguments)),
        attachments_(std::move(attachments)),
        transit_(line_, std::move(crossing), 0) {}

  bool answered() const { return answered_; }
  /// Nobody waits for it any more.
  void stop() {
    answered_ = true;
    stop_.request_stop();
  }

  std::shared_ptr<rpc::detail::Line> line() const override { return line_; }
  encoding::Reader arguments() override {
    encoding::Reader reader(bytes_, std::move(attachments_));
    reader.set_transit(&transit_);
    return reader;
  }
  encoding::Writer result() override {
    encoding::Writer writer;
    writer.set_transit(&transit_);
    return writer;
  }
  void reply(encoding::Writer) override { answered_ = true; }
  void fail(std::exception_ptr) override { answered_ = true; }
  bool begin() override { return !answered_; }
  void never_began(std::exception_ptr error) override { fail(std::move(error)); }
  void on_a_thread(bool, std::function<void()> turn,
                   std::function<void(const std::string&)>) override {
    executor_->post(std::move(turn));
  }
  rpc::detail::Executor& executor() override { return *executor_; }
  std::shared_ptr<rpc::detail::Agent> agent() override { return nullptr; }

 private:
  const std::shared_ptr<PretendLine> line_;
  const std::shared_ptr<PretendExecutor> executor_;
  const std::string bytes_;
  std::vector<encoding::Attachment> attachments_;
  rpc::detail::CallTransit transit_;
  std::atomic<bool> answered_{false};
};

}  // namespace trireme::testing
