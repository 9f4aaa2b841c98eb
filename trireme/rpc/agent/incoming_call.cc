// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/incoming_call.h"

#include <utility>

#include "trireme/base/check.h"
#include "trireme/rpc/agent/failures.h"
#include "trireme/rpc/agent/session.h"
#include "trireme/rpc/object/objects.h"

namespace trireme::rpc::detail {
namespace {

// A handler that is done sooner is not announced.
constexpr Duration kTellAfter = std::chrono::milliseconds(1);

std::vector<encoding::Attachment> attachments_of(std::vector<channel::Body> bodies) {
  std::vector<encoding::Attachment> attachments;
  attachments.reserve(bodies.size());
  for (auto& body : bodies) attachments.push_back({std::move(body.data), body.bytes});
  return attachments;
}

}  // namespace

IncomingCall::IncomingCall(std::shared_ptr<Session> session, const Method& method,
                           wire::Call&& call, Deadline deadline, channel::Message message,
                           size_t arguments_at)
    : Answering(session->peer(), std::move(call.chain), deadline),
      session_(std::move(session)),
      method_(method),
      standing_(method.standing),
      id_(call.id),
      arguments_at_(arguments_at),
      context_(call.context),
      message_(std::move(message)) {
  if (!standing_) ++session_->core()->answering;
}

IncomingCall::~IncomingCall() {
  const auto& core = session_->core();
  tally_.hide(*core->board);  // not before: a handler may run on though nobody waits for it
  if (!standing_) --core->answering;
}

void IncomingCall::count(CallCounts& counts) {
  uint64_t bytes = message_.bytes.size() - arguments_at_;
  for (const auto& body : message_.bodies) bytes += body.bytes;
  tally_.begin(counts, bytes);
}

bool IncomingCall::begin() {
  if (answered_) return false;
  const auto now = Clock::now();
  if (deadline().when() <= now) {  // the caller has given it up, or will in a moment
    answer_failure(std::make_exception_ptr(
                       Timeout("the deadline of the call passed before a thread was free for it")),
                   false);
    return false;
  }
  tally_.show(*session_->core()->board, CallDirection::answered, method_.name, caller());
  auto& deadlines = *session_->core()->deadlines;
  tells_ = deadlines.add(now + kTellAfter, [weak = weak_from_this()] {
    const auto call = weak.lock();
    if (call && !call->answered_) call->session_->send(wire::encode(wire::Began{call->id_}));
  });
  began_ = true;  // after tells_, which whoever answers first reads
  return true;
}

void IncomingCall::run() {
  if (method_.in_order ? answered_.load() : !begin()) return;
  CallScope scope(shared_from_this());
  Carrier::Arrived arrived;
  try {
    if (context_) {
      const auto& carrier = session_->core()->carrier;
      check<UsageError>(carrier != nullptr,
                        "worker '{}' takes no part in contexts, which '{}' was called within",
                        session_->core()->name, method());
      arrived = carrier->arrived(*context_, session_);
    }
  } catch (...) {
    return fail(std::current_exception());
  }
  transit_.emplace(session_, std::move(arrived.crossing), id_);
  ContextScope within(std::move(arrived.context));
  const auto self = std::static_pointer_cast<Answering>(shared_from_this());
  method_.run(self);
}

void IncomingCall::refuse(const std::string& why) {
  never_began(
      std::make_exception_ptr(ResourceError(fmt::format("{}: {}", wire::shown(chain()), why))));
}

void IncomingCall::never_began(std::exception_ptr error) {
  answer_failure(std::move(error), false);
}

void IncomingCall::on_a_thread(bool nested, std::function<void()> turn,
                               std::function<void(const std::string& why)> refused) {
  session_->core()->crew->post(Job{nested, std::move(turn), std::move(refused)});
}

std::shared_ptr<Line> IncomingCall::line() const { return session_; }

encoding::Reader IncomingCall::arguments() {
  encoding::Reader reader(std::string_view(message_.bytes).substr(arguments_at_),
                          attachments_of(std::move(message_.bodies)));
  reader.set_transit(&*transit_);
  return reader;
}

Executor& IncomingCall::executor() { return *session_->core()->crew; }

std::shared_ptr<Agent> IncomingCall::agent() { return session_->core()->agent.lock(); }

bool IncomingCall::first_answer() {
  if (answered_.exchange(true)) return false;
  auto& deadlines = *session_->core()->deadlines;
  if (began_) deadlines.remove(tells_);
  if (has_end_) deadlines.remove(ends_);
  return true;
}

encoding::Writer IncomingCall::result() {
  encoding::Writer writer(wire::encode(wire::Reply{id_}));
  writer.set_transit(&*transit_);
  return writer;
}

void IncomingCall::reply(encoding::Writer result) {
  std::string bytes = result.take();
  auto bodies = result.take_attachments();
  if (bytes.size() > channel::kMostBytes || bodies.size() > channel::kMostBodies) {
    fail(std::make_exception_ptr(UsageError(fmt::format(
        "the result of '{}' takes {} bytes and {} tensors, and at most {} and {} can travel: "
        "return "
        "large data as tensors, few of them",
        method(), bytes.size(), bodies.size(), channel::kMostBytes, channel::kMostBodies))));
    return;
  }
  if (!first_answer()) {
    session_->core()->objects->given_up(session_->link(), id_);
    return;
  }
  uint64_t result_bytes = bytes.size() - wire::encode(wire::Reply{}).size();
  for (const auto& body : bodies) result_bytes += body.bytes;
  tally_.ended(true, result_bytes);
  session_->send(std::move(bytes), std::move(bodies));
  session_->answered(id_);
}

void IncomingCall::fail(std::exception_ptr error) { answer_failure(std::move(error), true); }

void IncomingCall::answer_failure(std::exception_ptr error, bool began) {
  // A result that was begun may have had references.
  if (began) session_->core()->objects->given_up(session_->link(), id_);
  if (!first_answer()) return;
  tally_.ended(false);
  wire::Failure failure = described(error, session_->core()->name);
  failure.id = id_;
  failure.began = began;
  session_->send(wire::encode(failure));
  session_->answered(id_);
}

void IncomingCall::stop() {
  if (!first_answer()) return;
  tally_.ended(false);
  session_->answered(id_);
  stop_.request_stop();
}

}  // namespace trireme::rpc::detail
