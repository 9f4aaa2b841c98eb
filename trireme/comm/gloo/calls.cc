// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/gloo/gloo_backend.h"
#include "trireme/comm/gloo/tags.h"

// Posts calls, and releases what complete ones held.
namespace trireme::detail {

using local::DType;

at::Tensor GlooBackend::empty(at::IntArrayRef sizes, at::TensorOptions options) {
  check<UsageError>(options.device().is_cpu(),
                    "the gloo backend provides CPU memory, not {} memory", options.device().str());
  return at::empty(sizes, options);
}

GlooBackend::What GlooBackend::what(const Call& call) {
  What w{words_of(call), call.site};
  if (facts_of(w.op).is_uneven) w.count = 0;  // differs
  return w;
}

/// Returns what the group's thread does for the call.
GlooBackend::Run GlooBackend::run_of(const Call& call, const What& w) {
  const auto data = [](const at::Tensor* t) { return t && t->defined() ? t->data_ptr() : nullptr; };
  void *const in = data(call.input), *const out = data(call.output);
  const size_t bytes = call.counted() ? call.counted()->nbytes() : 0;
  switch (call.op) {
    case Collective::all_reduce:
      return [=](Collectives& c, CallKey key) { c.all_reduce(key, w.dtype, w.red, out, w.count); };
    case Collective::reduce:
      return
          [=](Collectives& c, CallKey key) { c.reduce(key, w.dtype, w.red, out, w.count, w.root); };
    case Collective::broadcast:
      return [=](Collectives& c, CallKey key) { c.broadcast(key, out, bytes, w.root); };
    case Collective::all_gather:
      return [=](Collectives& c, CallKey key) { c.all_gather(key, out, in, bytes); };
    case Collective::reduce_scatter:
      return [=](Collectives& c, CallKey key) {
        c.reduce_scatter(key, w.dtype, w.red, out, in, w.count);
      };
    case Collective::gather:
      return [=](Collectives& c, CallKey key) { c.gather(key, out, in, bytes, w.root); };
    case Collective::scatter:
      return [=](Collectives& c, CallKey key) { c.scatter(key, out, in, bytes, w.root); };
    case Collective::all_to_all: {
      const auto in_bytes = [&](const std::vector<int64_t>& counts) {
        std::vector<size_t> all;
        for (int64_t n : counts) all.push_back(static_cast<size_t>(n) * size_of(w.dtype));
        return all;
      };
      return [in, out, to = in_bytes(*call.input_counts), from = in_bytes(*call.output_counts)](
                 Collectives& c, CallKey key) { c.all_to_all(key, out, in, from, to); };
    }
    default:
      return [](Collectives& c, CallKey key) { c.barrier(key); };
  }
}

Token GlooBackend::post(const Call& call) {
  if (call.facts().is_message) return post_message(call);
  check_usable();
  auto posted = std::make_shared<Posted>();
  posted->seq = ++calls_;
  posted->what = what(call);
  if (call.input) posted->in = *call.input;
  if (call.output && call.output != call.input) posted->out = *call.output;
  posted->run = run_of(call, posted->what);
  // No elements anywhere: nothing to wait for.
  if (posted->what.count == 0 && call.op != Collective::barrier && !call.facts().is_uneven)
    return {};
  if (size() == 1) {
    Collectives alone(nullptr, 0, 1);
    posted->run(alone, {});
    return {};
  }
  const Token token = hold(posted, collective, -1);
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(posted);
    if (!carrier_.joinable()) carrier_ = quiet_thread([this] { carry(); });
  }
  wake_.notify_all();
  return token;
}

Token GlooBackend::post_message(const Call& call) {
  const int peer = call.root, tag = call.tag;
  const bool sends = call.op == Collective::send;
  check<UsageError>(tag > kFirstTag && tag <= kLastTag,
                    "{}: tag {}; the gloo backend takes tags up to {}. Number tags from 0 on",
                    name_of(call.op), tag, kLastTag);
  check_usable();
  const at::Tensor& t = *call.input;
  auto posted = std::make_shared<Posted>();
  posted->what = what(call);
  posted->peer = peer;
  (sends ? posted->in : posted->out) = t;
  void* const data = t.numel() ? t.data_ptr() : &posted->byte;
  const size_t bytes = t.numel() ? t.nbytes() : 1;
  const int wire_tag = message_tag(tag, t.nbytes());
  try {
    posted->message = sends ? messenger_->send(data, bytes, peer, wire_tag)
                            : messenger_->recv(data, bytes, peer, wire_tag);
  } catch (const MessageLost& e) {
    fail_now(diagnose(e, text_of(*posted)));
  }
  return hold(posted, message, peer);
}

Token GlooBackend::hold(const std::shared_ptr<Posted>& call, Kind kind, int peer) {
  if (held_.size() >= reap_at_) {  // whose Works were dropped
    reap();
    reap_at_ = std::max(kManyHeld, 2 * held_.size());
  }
  const Token token{++number_, peer, kind};
  held_[token.number] = call;
  return token;
}

void GlooBackend::finish(uint64_t number) {
  const auto at = held_.find(number);
  const std::shared_ptr<Posted> call = at->second;
  held_.erase(at);
  if (call->message && call->what.op == Collective::recv && call->peer == kAnySource) {
    sources_[number] = Messenger::source(call->message);
    if (sources_.size() > 65536) sources_.erase(sources_.begin());
  }
  call->message.reset();
  if (call->done) call->done();
}

void GlooBackend::reap() {
  std::vector<uint64_t> settled;
  for (auto& [number, call] : held_) {
    if (call->message ? messenger_->is_settled(call->message) : call->finished.load())
      settled.push_back(number);
  }
  for (uint64_t number : settled) {
    const auto at = held_.find(number);
    if (at == held_.end()) continue;  // the callback of another call waited for it
    const auto call = at->second;
    if (call->message) {
      try {
        if (messenger_->wait(call->message, Deadline::after(timeout())) !=
            Messenger::Outcome::complete)
          return;
      } catch (const MessageLost&) {  // its wait reports it
        return;
      }
    }
    finish(number);
  }
}

bool GlooBackend::completed(Token token) {
  const auto at = held_.find(token.number);
  if (at == held_.end()) return true;
  Posted& call = *at->second;
  if (call.message) {
    check_usable();
    if (!messenger_->is_settled(call.message)) return false;
    wait_for_message(call, timeout());  // returns at once
  } else if (!call.finished) {
    check_usable();
    return false;
  }
  finish(token.number);
  return true;
}

int GlooBackend::source(Token token) {
  if (token.peer != kAnySource) return token.peer;
  const auto at = sources_.find(token.number);
  check<UsageError>(at != sources_.end(), "source() was called on a recv that is not complete");
  return at->second;
}

void GlooBackend::when_complete(Token token, std::function<void()> done) {
  const auto at = held_.find(token.number);
  if (at == held_.end()) return done();
  at->second->done = std::move(done);
}

}  // namespace trireme::detail
