// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/agent/session.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/rpc/agent/incoming_call.h"
#include "trireme/rpc/errors.h"
#include "trireme/rpc/object/objects.h"

namespace trireme::rpc::detail {
namespace {

std::exception_ptr lost(const std::string& peer, const std::string& method, const std::string& why,
                        Began began) {
  const char* const known = began == Began::no    ? "had not begun"
                            : began == Began::yes ? "had begun"
                                                  : "may have begun";
  return std::make_exception_ptr(CallLost(
      fmt::format("worker '{}' does not answer '{}', which {}: {}", peer, method, known, why),
      began));
}

std::string shown(Duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

// The most that has a place in microseconds; what is longer is no deadline.
uint64_t budget_of(Duration patience) {
  if (patience == Duration::max()) return wire::kNoBudget;
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(patience).count());
}
}  // namespace

Session::Session(std::shared_ptr<Core> core, std::string peer, int road,
                 std::function<void(const std::shared_ptr<Session>&)> greeted)
    : core_(std::move(core)),
      peer_(std::move(peer)),
      road_(road),
      link_(++core_->links),
      executor_(core_->crew),
      on_greeted_(std::move(greeted)),
      greeted_(std::make_shared<FutureState<void>>(core_->crew)) {
  greeted_->comes_by(road);
}

Session::~Session() = default;

void Session::attach(std::shared_ptr<channel::Channel> channel) {
  wire::Hello hello{core_->name, core_->member, {}};
  for (const Method& method : core_->methods)
    hello.methods.push_back({method.name, method.signature});
  std::string why;
  {
    std::lock_guard lock(mutex_);
    if (closed_)
      why = why_;
    else
      channel_ = channel;
  }
  if (!why.empty())
    channel->close(why);
  else
    channel->send({wire::encode(hello), {}});
}

void Session::wait_for_hello(Deadline deadline) {
  const auto place = core_->deadlines->add(deadline.when(), [greeted = greeted_, peer = peer_] {
    std::exception_ptr error = std::make_exception_ptr(
        Timeout(fmt::format("worker '{}' has not said hello by the deadline: does it run?", peer)));
    greeted->fail(std::move(error));
  });
  if (!deadline.is_never()) core_->crew->rouse(place.at);
  greeted_->wait();
  core_->deadlines->remove(place);
  if (greeted_->failed()) greeted_->take();
}

bool Session::open() const {
  std::lock_guard lock(mutex_);
  return !closed_ && !leaves_;
}

bool Session::ended() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

uint32_t Session::number_of(const Outgoing& outgoing) {
  const auto found = numbers_.find(std::string_view(outgoing.method));
  check<UsageError>(found != numbers_.end(),
                    "worker '{}' offers no method '{}': it must be among the offers of its "
                    "rpc::Options",
                    peer_, outgoing.method);
  const std::string& theirs = theirs_.methods[found->second].signature;
  check<Mismatch>(theirs == *outgoing.signature,
                  "'{}' is {} on worker '{}' and {} here: use the same program everywhere",
                  outgoing.method, theirs, peer_, *outgoing.signature);
  return found->second;
}

std::shared_ptr<void> Session::empty(uint64_t bytes) {
  std::shared_ptr<channel::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    if (closed_) std::rethrow_exception(lost(peer_, "empty", why_, Began::no));
    channel = channel_;
  }
  return channel->empty(bytes);
}

void Session::call(Outgoing outgoing, Deadline deadline) {
  const auto future = outgoing.future;
  std::exception_ptr error;
  try {
    const auto& within = current_call();
    if (within && within->deadline().when() < deadline.when()) deadline = within->deadline();
    Duration patience = deadline.remaining();
    wire::Call call;
    call.method = number_of(outgoing);
    if (within) call.chain = within->chain();
    if (outgoing.crossing) call.context = outgoing.crossing->said();
    std::string bytes = wire::encode(call);
    uint64_t argument_bytes = bytes.size();
    bytes += outgoing.arguments.take();
    argument_bytes = bytes.size() - argument_bytes;
    auto attachments = outgoing.arguments.take_attachments();
    for (const auto& attachment : attachments) argument_bytes += attachment.bytes;
    check<UsageError>(
        bytes.size() <= channel::kMostBytes && attachments.size() <= channel::kMostBodies,
        "the arguments of '{}' take {} bytes and {} tensors, and at most {} and {} can travel: "
        "pass "
        "large data as tensors, few of them",
        outgoing.method, bytes.size(), attachments.size(), channel::kMostBytes,
        channel::kMostBodies);
    const auto too_late = [&](const std::string& why) {
      fail<Timeout>("'{}' on worker '{}' had not begun after {}: {}", outgoing.method, peer_,
                    trireme::rpc::detail::shown(patience), why);
    };
    if (patience <= Duration::zero()) too_late("the deadline had passed before it was sent");
    // Short ones overtake what travels in chunks, and do not wait for it to leave.
    uint64_t short_bytes = bytes.size();
    for (const auto& attachment : attachments) short_bytes += attachment.bytes;
    if (short_bytes > channel::kChunk) short_bytes = 0;
    const auto room = [&] {
      std::shared_ptr<channel::Channel> channel;
      {
        std::lock_guard lock(mutex_);
        if (closed_) return true;
        if (waiting_.size() >= core_->most_waiting) return false;
        if (short_bytes > 0 && short_bytes_ + short_bytes <= core_->most_unsent) return true;
        channel = channel_;
      }
      return channel->unsent() <= core_->most_unsent;  // outside: the road has locks of its own
    };
    if (!room()) {
      if (!core_->crew->wait_until(room, deadline))
        too_late("the peer takes calls more slowly than they are made");
      patience = deadline.remaining();
    }
    uint64_t id = 0;
    std::shared_ptr<channel::Channel> channel;
    {
      std::lock_guard lock(mutex_);
      if (closed_ || leaves_)
        std::rethrow_exception(
            lost(peer_, outgoing.method, closed_ ? why_ : "it leaves", Began::no));
      id = next_id_++;
      channel = channel_;
      future->cancels(weak_from_this(), id);
      Waiting waiting{.method = outgoing.method,
                      .future = future,
                      .fill = std::move(outgoing.fill),
                      .crossing = std::move(outgoing.crossing),
                      .passage = std::move(outgoing.passage),
                      .place = {},
                      .short_bytes = short_bytes,
                      .patience = patience,
                      .standing = outgoing.standing};
      waiting.tally.begin(counts_of(call.method, outgoing.method), argument_bytes);
      waiting.tally.show(*core_->board, CallDirection::made, outgoing.method, peer_);
      if (!deadline.is_never())
        waiting.place = core_->deadlines->add(deadline.when(), [weak = weak_from_this(), id] {
          if (const auto session = weak.lock()) session->give_up(id, true);
        });
      if (waiting.passage) waiting.passage->fate = Passage::Fate::under_way;
      waiting_.put(id, std::move(waiting));
      short_bytes_ += short_bytes;
      if (!outgoing.standing) ++core_->made;
    }
    wire::complete(bytes, id, budget_of(patience));
    std::vector<channel::Body> bodies;
    for (auto& attachment : attachments)
      bodies.push_back({std::move(attachment.data), attachment.bytes});
    if (!channel->send({std::move(bytes), std::move(bodies)})) {
      if (auto waiting = take(id)) {
        ended(*waiting, false);
        waiting->future->fail(
            lost(peer_, waiting->method, "the channel to it is closed", Began::no));
      }
      end("the channel to it is closed");
      return;
    }
    if (!deadline.is_never()) core_->crew->rouse(deadline.when());
  } catch (...) {
    error = std::current_exception();
  }
  // Outside: who waits for it is then its only owner.
  if (error) future->fail(std::move(error));
}

bool Session::offers(const std::string& method) const {
  std::lock_guard lock(mutex_);
  return numbers_.contains(method);
}

// Under the lock.
CallCounts& Session::counts_of(uint32_t number, const char* method) {
  if (number >= counts_.size()) counts_.resize(number + 1);
  if (!counts_[number]) counts_[number] = &core_->counts.made(method);
  return *counts_[number];
}

void Session::ended(Waiting& waiting, bool well, uint64_t result_bytes) {
  waiting.tally.hide(*core_->board);
  waiting.tally.ended(well, result_bytes);
}

std::optional<Session::Waiting> Session::take(uint64_t id) {
  std::optional<Waiting> waiting;
  {
    std::lock_guard lock(mutex_);
    waiting = waiting_.take(id);
    if (!waiting) return {};
    short_bytes_ -= waiting->short_bytes;
  }
  core_->deadlines->remove(waiting->place);
  if (!waiting->standing) --core_->made;
  return waiting;
}

// The caller does not wait any more.
void Session::give_up(uint64_t id, bool late) {
  auto waiting = take(id);
  if (!waiting) return;
  ended(*waiting, false);
  send(wire::encode(wire::Cancel{id}));
  const char* const known = waiting->began ? "had begun" : "may have begun";
  // Made before: who waits for it is then its only owner.
  std::exception_ptr error =
      late ? std::make_exception_ptr(Timeout(fmt::format(
                 "'{}' on worker '{}', which {}, has not answered in {}. Give it a longer "
                 "deadline, or find out what it waits for",
                 waiting->method, peer_, known, trireme::rpc::detail::shown(waiting->patience))))
           : std::make_exception_ptr(
                 Aborted(fmt::format("'{}' on worker '{}', which {}, was cancelled by its caller",
                                     waiting->method, peer_, known)));
  waiting->future->fail(std::move(error));
}

bool Session::send(std::string bytes, std::vector<encoding::Attachment> attachments) {
  std::shared_ptr<channel::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    channel = channel_;
  }
  std::vector<channel::Body> bodies;
  bodies.reserve(attachments.size());
  for (auto& attachment : attachments)
    bodies.push_back({std::move(attachment.data), attachment.bytes});
  return channel && channel->send({std::move(bytes), std::move(bodies)});
}

void Session::answered(uint64_t id) {
  std::optional<std::shared_ptr<IncomingCall>> call;  // destroyed outside of the lock
  std::lock_guard lock(mutex_);
  call = incoming_.take(id);
}

void Session::leave(const std::string& why) {
  send(wire::encode(wire::Goodbye()));
  {
    std::lock_guard lock(mutex_);
    ours_ = true;
  }
  break_off(why);
}

void Session::break_off(const std::string& why) {
  std::shared_ptr<channel::Channel> channel;
  {
    std::lock_guard lock(mutex_);
    channel = channel_;
  }
  end(why);
  if (channel) channel->close(why);
}

void Session::closed(const std::string& why) { end(why); }

void Session::end(const std::string& why) {
  std::unordered_map<uint64_t, Waiting> waiting;
  std::map<uint64_t, std::shared_ptr<IncomingCall>> held;
  std::function<void(const std::shared_ptr<Session>&)> nobody_to_tell;
  std::shared_ptr<channel::Channel> channel;
  bool they_left = false, ours = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    why_ = why;
    they_left = leaves_;
    ours = ours_;
    waiting = waiting_.take_all();
    held.swap(held_);
    nobody_to_tell = std::exchange(on_greeted_, nullptr);
    channel = std::exchange(channel_, nullptr);  // which holds us
  }
  std::exception_ptr unheard = std::make_exception_ptr(CallLost(
      fmt::format("worker '{}' was lost before it said hello: {}", peer_, why), Began::no));
  greeted_->fail(std::move(unheard));
  for (auto& [id, call] : waiting) {
    core_->deadlines->remove(call.place);
    if (!call.standing) --core_->made;
    ended(call, false);
    // Who says goodbye has answered all calls that came.
    const Began began = call.began ? Began::yes : they_left ? Began::no : Began::unknown;
    std::exception_ptr error =
        ours ? std::make_exception_ptr(Aborted(
                   fmt::format("'{}' on worker '{}' was given up: {}", call.method, peer_, why)))
             : lost(peer_, call.method, why, began);
    call.future->fail(std::move(error));
  }
  stop_handlers();
  for (const auto& watcher : core_->watchers) watcher->lost(*this);
  core_->objects->lost(link_, peer_, why);
}

void Session::stop_handlers() {
  std::vector<std::shared_ptr<IncomingCall>> calls;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, call] : incoming_) calls.push_back(call);
  }
  for (const auto& call : calls) call->stop();
}

std::vector<std::string> Session::handlers() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> methods;
  for (const auto& [id, call] : incoming_)
    if (call->began()) methods.push_back(call->method());
  return methods;
}

}  // namespace trireme::rpc::detail
