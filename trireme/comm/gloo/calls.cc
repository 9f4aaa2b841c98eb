// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/comm/gloo/gloo_backend.h"
#include "trireme/comm/gloo/tags.h"

// Posting, and letting go of what is complete.
namespace trireme::detail {

using local::DType;
using local::OpKind;
using local::RedOp;

at::Tensor GlooBackend::empty(at::IntArrayRef sizes, at::TensorOptions options) {
  check<UsageError>(options.device().is_cpu(), "the gloo backend has memory of the CPU, not of {}",
                    options.device().str());
  return at::empty(sizes, options);
}

Token GlooBackend::all_reduce(const at::Tensor& t, ReduceOp op, CallSite site) {
  const What w = what(OpKind::all_reduce, t, site, 0, op);
  return post(w, t, {}, [w, p = t.data_ptr()](Collectives& c, CallKey key) {
    c.all_reduce(key, w.dtype, w.red, p, w.count);
  });
}

Token GlooBackend::reduce(const at::Tensor& t, int root, ReduceOp op, CallSite site) {
  const What w = what(OpKind::reduce, t, site, root, op);
  return post(w, t, {}, [w, p = t.data_ptr()](Collectives& c, CallKey key) {
    c.reduce(key, w.dtype, w.red, p, w.count, w.root);
  });
}

Token GlooBackend::broadcast(const at::Tensor& t, int root, CallSite site) {
  const What w = what(OpKind::broadcast, t, site, root);
  return post(w, t, {}, [w, p = t.data_ptr(), bytes = t.nbytes()](Collectives& c, CallKey key) {
    c.broadcast(key, p, bytes, w.root);
  });
}

Token GlooBackend::all_gather(const at::Tensor& output, const at::Tensor& input, CallSite site) {
  const What w = what(OpKind::all_gather, input, site);
  return post(w, input, output,
              [in = input.data_ptr(), out = output.data_ptr(), bytes = input.nbytes()](
                  Collectives& c, CallKey key) { c.all_gather(key, out, in, bytes); });
}

Token GlooBackend::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                                  CallSite site) {
  const What w = what(OpKind::reduce_scatter, output, site, 0, op);
  return post(w, input, output,
              [w, in = input.data_ptr(), out = output.data_ptr()](Collectives& c, CallKey key) {
                c.reduce_scatter(key, w.dtype, w.red, out, in, w.count);
              });
}

Token GlooBackend::gather(const at::Tensor& output, const at::Tensor& input, int root,
                          CallSite site) {
  const What w = what(OpKind::gather, input, site, root);
  return post(w, input, output,
              [w, in = input.data_ptr(), out = output.defined() ? output.data_ptr() : nullptr,
               bytes = input.nbytes()](Collectives& c, CallKey key) {
                c.gather(key, out, in, bytes, w.root);
              });
}

Token GlooBackend::scatter(const at::Tensor& output, const at::Tensor& input, int root,
                           CallSite site) {
  const What w = what(OpKind::scatter, output, site, root);
  return post(w, input, output,
              [w, in = input.defined() ? input.data_ptr() : nullptr, out = output.data_ptr(),
               bytes = output.nbytes()](Collectives& c, CallKey key) {
                c.scatter(key, out, in, bytes, w.root);
              });
}

Token GlooBackend::all_to_all(const at::Tensor& output, const at::Tensor& input,
                              const std::vector<int64_t>& output_counts,
                              const std::vector<int64_t>& input_counts, CallSite site) {
  What w = what(OpKind::all_to_all, input, site);
  w.count = 0;  // differs
  auto bytes = [&](const std::vector<int64_t>& counts) {
    std::vector<size_t> all;
    for (int64_t n : counts) all.push_back(static_cast<size_t>(n) * size_of(w.dtype));
    return all;
  };
  return post(w, input, output,
              [in = input.data_ptr(), out = output.data_ptr(), out_bytes = bytes(output_counts),
               in_bytes = bytes(input_counts)](Collectives& c, CallKey key) {
                c.all_to_all(key, out, in, out_bytes, in_bytes);
              });
}

Token GlooBackend::barrier(CallSite site) {
  What w{OpKind::barrier};
  w.site = site;
  return post(w, {}, {}, [](Collectives& c, CallKey key) { c.barrier(key); });
}

GlooBackend::What GlooBackend::what(OpKind op, const at::Tensor& t, CallSite site, int root,
                                    ReduceOp red) {
  What w{op};
  w.dtype = dtype_of(t.scalar_type()).value_or(DType::u8);
  w.red = static_cast<RedOp>(red);
  w.root = root;
  w.count = static_cast<size_t>(t.numel());
  w.site = site;
  return w;
}

Token GlooBackend::post(const What& w, const at::Tensor& in, const at::Tensor& out, Run run) {
  check_usable();
  auto call = std::make_shared<Call>();
  call->seq = ++calls_;
  call->what = w;
  call->in = in;
  call->out = out;
  call->run = std::move(run);
  // No elements anywhere: nothing to wait for.
  if (w.count == 0 && w.op != OpKind::barrier && w.op != OpKind::all_to_all) return {};
  if (size() == 1) {
    Collectives alone(nullptr, 0, 1);
    call->run(alone, {});
    return {};
  }
  const Token token = hold(call, collective, -1);
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(call);
    if (!carrier_.joinable()) carrier_ = std::thread([this] { carry(); });
  }
  wake_.notify_all();
  return token;
}

Token GlooBackend::post_message(OpKind op, const at::Tensor& t, int peer, int tag, CallSite site) {
  check<UsageError>(tag > kFirstTag && tag <= kLastTag,
                    "{}: tag {}; the gloo backend takes tags up to {}. Number tags from 0 on",
                    name_of(op), tag, kLastTag);
  check_usable();
  auto call = std::make_shared<Call>();
  call->what = what(op, t, site, peer);
  call->peer = peer;
  (op == OpKind::send ? call->in : call->out) = t;
  void* const data = t.numel() ? t.data_ptr() : &call->byte;
  const size_t bytes = t.numel() ? t.nbytes() : 1;
  const int wire_tag = message_tag(tag, t.nbytes());
  try {
    call->message = op == OpKind::send ? messenger_->send(data, bytes, peer, wire_tag)
                                       : messenger_->recv(data, bytes, peer, wire_tag);
  } catch (const MessageLost& e) {
    fail_now(diagnose(e, text_of(*call)));
  }
  return hold(call, message, peer);
}

Token GlooBackend::hold(const std::shared_ptr<Call>& call, Kind kind, int peer) {
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
  const std::shared_ptr<Call> call = at->second;
  held_.erase(at);
  if (call->message && call->what.op == OpKind::recv && call->peer == kAnySource) {
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
    if (at == held_.end()) continue;  // a done of another one waited for it
    const auto call = at->second;
    if (call->message) {
      try {
        if (messenger_->wait(call->message, Deadline::after(timeout())) !=
            Messenger::Outcome::complete)
          return;
      } catch (const MessageLost&) {  // whoever waits for it says so
        return;
      }
    }
    finish(number);
  }
}

bool GlooBackend::completed(Token token) {
  const auto at = held_.find(token.number);
  if (at == held_.end()) return true;
  Call& call = *at->second;
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
  check<UsageError>(at != sources_.end(), "source() of a recv that is not complete");
  return at->second;
}

void GlooBackend::when_complete(Token token, std::function<void()> done) {
  const auto at = held_.find(token.number);
  if (at == held_.end()) return done();
  at->second->done = std::move(done);
}

}  // namespace trireme::detail
