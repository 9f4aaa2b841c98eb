// SPDX-License-Identifier: Apache-2.0
// What a session does with what comes.
#include <exception>
#include <utility>
#include <variant>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/rpc/agent/failures.h"
#include "trireme/rpc/agent/incoming_call.h"
#include "trireme/rpc/agent/session.h"
#include "trireme/rpc/errors.h"
#include "trireme/rpc/object/objects.h"

namespace trireme::rpc::detail {
namespace {

Deadline deadline_of(uint64_t budget_us) {
  constexpr uint64_t kYears = uint64_t{100} * 365 * 86400 * 1'000'000;
  if (budget_us > kYears) return Deadline::never();
  return Deadline::after(std::chrono::microseconds(static_cast<int64_t>(budget_us)));
}

}  // namespace

std::shared_ptr<IncomingCall> Session::find(uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto* found = incoming_.find(id);
  return found ? *found : nullptr;
}

void Session::received(channel::Message message) {
  std::string why;
  bool other_version = false;
  try {
    auto decoded = wire::decode(message.bytes);
    const bool is_hello = std::holds_alternative<wire::Hello>(decoded.message);
    check<Corrupt>(is_hello != heard_, "{}",
                   is_hello ? "it says hello twice" : "it does not say hello first");
    check<Corrupt>(message.bodies.empty() || std::holds_alternative<wire::Call>(decoded.message) ||
                       std::holds_alternative<wire::Reply>(decoded.message),
                   "a message that has no tensors brings some");
    std::visit(
        [&](auto& said) {
          using T = std::remove_reference_t<decltype(said)>;
          if constexpr (std::is_same_v<T, wire::Hello>) {
            on_hello(std::move(said));
          } else if constexpr (std::is_same_v<T, wire::Call>) {
            on_call(std::move(said), std::move(message), decoded.value_at);
            run_in_order();
          } else if constexpr (std::is_same_v<T, wire::Reply>) {
            on_reply(said, std::move(message), decoded.value_at);
          } else if constexpr (std::is_same_v<T, wire::Failure>) {
            on_failure(said);
          } else if constexpr (std::is_same_v<T, wire::Cancel>) {
            on_cancel(said.id);
          } else if constexpr (std::is_same_v<T, wire::Began>) {
            std::lock_guard lock(mutex_);
            if (Waiting* const found = waiting_.find(said.id)) found->began = true;
          } else {
            std::lock_guard lock(mutex_);
            leaves_ = true;
          }
        },
        decoded.message);
    return;
  } catch (const Mismatch& error) {
    other_version = true;
    why = brief(error);
  } catch (const std::exception& error) {
    why = brief(error);
  }
  why = fmt::format("worker '{}' cannot be understood: {}", peer_, why);
  log_warn("{}. Its channel is closed", why);
  // Its only owner is the one who waits.
  if (other_version) {
    std::exception_ptr error = std::make_exception_ptr(Mismatch(why));
    greeted_->fail(std::move(error));
  }
  break_off(why);
}

void Session::on_hello(wire::Hello hello) {
  check<Corrupt>(hello.worker == peer_, "it says that it is worker '{}'", hello.worker);
  std::function<void(const std::shared_ptr<Session>&)> tell;
  {
    std::lock_guard lock(mutex_);
    heard_ = true;
    tell = std::exchange(on_greeted_, nullptr);
    theirs_ = std::move(hello);
    for (uint32_t i = 0; i < theirs_.methods.size(); ++i)
      check<Corrupt>(numbers_.emplace(theirs_.methods[i].name, i).second, "it offers '{}' twice",
                     theirs_.methods[i].name);
    if (!closed_) core_->objects->opened(shared_from_this());
  }
  greeted_->set({});
  if (tell) tell(shared_from_this());
}

void Session::refuse(uint64_t id, const std::string& kind, const std::string& why) {
  wire::Failure failure;
  failure.id = id;
  failure.kind = kind;
  failure.text = why;
  failure.worker = core_->name;
  send(wire::encode(failure));
}

void Session::on_call(wire::Call call, channel::Message message, size_t arguments_at) {
  size_t incoming = 0;
  {
    std::lock_guard lock(mutex_);
    check<Corrupt>(seen_.take(call.id), "its call {} comes again, or far too early", call.id);
    incoming = incoming_.size();
  }
  if (core_->leaving)
    return refuse(call.id, "PeerLost", fmt::format("worker '{}' leaves", core_->name));
  if (call.method >= core_->methods.size())
    return refuse(
        call.id, "UsageError",
        fmt::format("worker '{}' has no method with number {}", core_->name, call.method));
  if (incoming >= kMostIncoming)
    return refuse(call.id, "ResourceError",
                  fmt::format("{} calls of worker '{}' wait for an answer: wait for some of them "
                              "before you make more",
                              incoming, peer_));
  const uint32_t number = call.method;
  const Method& method = core_->methods[number];
  const bool nested = !call.chain.empty();
  const uint64_t id = call.id;
  call.chain.push_back({core_->name, method.name});
  const Deadline deadline = deadline_of(call.budget_us);
  auto incoming_call = std::make_shared<IncomingCall>(shared_from_this(), method, std::move(call),
                                                      deadline, std::move(message), arguments_at);
  incoming_call->count(*core_->answered[number]);
  if (!deadline.is_never()) {
    incoming_call->ends_ =
        core_->deadlines->add(deadline.when(), [weak = std::weak_ptr(incoming_call)] {
          if (const auto late = weak.lock()) late->stop();
        });
    incoming_call->has_end_ = true;
  }
  bool gone = false;
  {
    std::lock_guard lock(mutex_);
    if (!closed_) incoming_.put(id, incoming_call);
    gone = closed_;
  }
  if (gone) return incoming_call->stop();
  if (method.at_once) return incoming_call->run();
  if (method.in_order) {
    std::lock_guard lock(mutex_);
    held_.emplace(id, std::move(incoming_call));
    return;
  }
  core_->crew->post(
      Job{nested, [incoming_call] { incoming_call->run(); },
          [call = incoming_call.get()](const std::string& why) { call->refuse(why); }});
}

// Of methods in order, those before which nothing is under way any more: short messages overtake
// long ones.
void Session::run_in_order() {
  for (;;) {
    std::shared_ptr<IncomingCall> call;
    {
      std::lock_guard lock(mutex_);
      if (held_.empty() || held_.begin()->first >= seen_.next()) return;
      call = std::move(held_.begin()->second);
      held_.erase(held_.begin());
    }
    call->run();
  }
}

void Session::on_reply(const wire::Reply& reply, channel::Message message, size_t result_at) {
  auto waiting = take(reply.id);
  if (!waiting) {
    std::lock_guard lock(mutex_);
    check<Corrupt>(reply.id < next_id_, "it answers call {}, which was never made", reply.id);
    return;
  }
  uint64_t result_bytes = message.bytes.size() - result_at;
  for (const auto& body : message.bodies) result_bytes += body.bytes;
  std::vector<encoding::Attachment> attachments;
  for (auto& body : message.bodies) attachments.push_back({std::move(body.data), body.bytes});
  encoding::Reader reader(std::string_view(message.bytes).substr(result_at),
                          std::move(attachments));
  if (waiting->passage) waiting->passage->fate = Passage::Fate::answered;
  CallTransit transit(shared_from_this(), std::move(waiting->crossing));
  reader.set_transit(&transit);
  std::exception_ptr error;
  // Before the future is ready: who reads the counts then finds this call in them.
  ended(*waiting, true, result_bytes);
  try {
    waiting->fill(reader);
  } catch (...) {  // the bytes are no such value: the call has failed, the session has not
    error = std::current_exception();
  }
  if (error) waiting->future->fail(std::move(error));
}

void Session::on_failure(const wire::Failure& failure) {
  auto waiting = take(failure.id);
  if (!waiting) {
    std::lock_guard lock(mutex_);
    check<Corrupt>(failure.id < next_id_, "it answers call {}, which was never made", failure.id);
    return;
  }
  ended(*waiting, false);
  if (waiting->passage)
    waiting->passage->fate = failure.began ? Passage::Fate::failed : Passage::Fate::unread;
  waiting->future->fail(rebuilt(failure, waiting->method));
}

void Session::on_cancel(uint64_t id) {
  if (const auto call = find(id)) call->stop();
  core_->objects->given_up(link_, id);
}

}  // namespace trireme::rpc::detail
