// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/gloo/backend.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/rank_label.h"
#include "trireme/comm/c10d/dtypes.h"
#include "trireme/comm/c10d/store.h"
#include "trireme/comm/c10d/world.h"
#include "trireme/comm/gloo/collectives.h"
#include "trireme/comm/gloo/connecting.h"
#include "trireme/comm/gloo/interface.h"
#include "trireme/comm/gloo/messenger.h"
#include "trireme/comm/gloo/tags.h"
#include "trireme/store/join.h"
#include "trireme/store/store.h"

namespace trireme::detail {
namespace {

using local::DType;
using local::OpKind;
using local::RedOp;

constexpr Duration kStall = std::chrono::seconds(1);     // then a rank says what it waits in
constexpr Duration kPatience = std::chrono::seconds(2);  // for the cause of a broken connection
constexpr Duration kConnect = std::chrono::seconds(30);
constexpr size_t kManyHeld = 64;

/// What a rank called, for texts and for what all ranks must agree on.
struct What {
  OpKind op;
  DType dtype = DType::u8;
  RedOp red = RedOp::sum;
  int root = 0;
  size_t count = 0;
  CallSite site = {};

  bool reduces() const {
    return op == OpKind::all_reduce || op == OpKind::reduce || op == OpKind::reduce_scatter;
  }
  uint64_t digest() const {
    uint64_t d = mixed(static_cast<uint64_t>(op) + 1);
    if (op != OpKind::barrier) d = mixed(d ^ static_cast<uint64_t>(dtype));
    if (reduces()) d = mixed(d ^ static_cast<uint64_t>(red));
    return mixed(mixed(d ^ static_cast<uint64_t>(root)) ^ count);
  }
  std::string text() const {
    std::string t = name_of(op);
    if (op == OpKind::all_to_all) {
      t += fmt::format("({})", name_of(dtype));
    } else if (op != OpKind::barrier) {
      t += fmt::format("({}[{}]", name_of(dtype), count);
      if (reduces()) t += fmt::format(", {}", name_of(red));
      if (op == OpKind::broadcast || op == OpKind::reduce || op == OpKind::gather ||
          op == OpKind::scatter)
        t += fmt::format(", root {}", root);
      t += ")";
    }
    if (site.file && *site.file) t += fmt::format(" at {}:{}", site.file, site.line);
    return t;
  }
};

class GlooBackend final : public Backend {
 public:
  enum Kind : uint8_t { collective = 1, message = 2 };

  GlooBackend(std::shared_ptr<World> world, std::string group, int rank,
              std::vector<int> world_ranks, Duration timeout)
      : Backend(rank, static_cast<int>(world_ranks.size()), timeout),
        world_(std::move(world)),
        group_(std::move(group)),
        world_ranks_(std::move(world_ranks)) {
    if (size() > 1)
      world_->watch->join(group_, world_ranks_, [this](const Failure& f) { settle(f); });
  }

  ~GlooBackend() override {
    if (size() == 1) return;
    leave();
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      if (messenger_) messenger_->revoke();
    }
    wake_.notify_all();
    if (carrier_.joinable()) carrier_.join();
  }

  void connect(const std::string& host, const std::string& interface, Deadline deadline,
               const Messenger* parent) {
    if (size() == 1) return;
    const auto connecting = std::make_shared<Connecting>();
    {
      std::lock_guard lock(mutex_);
      connecting_ = connecting;
    }
    const auto start = Clock::now();
    try {
      auto store = std::make_unique<C10dStore>(
          std::make_shared<PrefixStore>(std::shared_ptr<Store>(world_->store->clone(deadline)),
                                        "gloo/" + group_),
          deadline, [this, connecting] {
            check_usable();
            connecting->proceeds();
          });
      const Duration limit = std::min<Duration>(kConnect, deadline.remaining());
      auto made = parent ? std::make_unique<Messenger>(std::move(store), rank(), size(), *parent,
                                                       limit, *connecting)
                         : std::make_unique<Messenger>(std::move(store), rank(), size(), host,
                                                       interface, limit, *connecting);
      std::lock_guard lock(mutex_);
      connecting_.reset();
      messenger_ = std::move(made);
      if (failure_) messenger_->revoke();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      check_usable();
      // A connection is refused before the will of who has died is known.
      if (auto told = world_->watch->cause(group_, -1, kPatience)) fail_now(*told);
      fail_now({Failure::Kind::lost, world_rank(rank()),
                fmt::format("gloo: rank {} did not get connected to the others of the group in "
                            "{:.3g} s: {}",
                            rank(), seconds_since(start), e.what())});
    }
    check_usable();
    collectives_.emplace(messenger_.get(), rank(), size());
  }

  /// Throws what ended the group.
  void check_usable() {
    std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

  const std::string& name() const override {
    static const std::string name = "gloo";
    return name;
  }
  bool supports(Collective, at::ScalarType dtype, at::DeviceType device) const override {
    return device == at::kCPU && reduced_as(dtype).has_value();
  }
  bool supports(ReduceOp op, at::ScalarType dtype) const override { return reduces(op, dtype); }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    check<UsageError>(options.device().is_cpu(),
                      "the gloo backend has memory of the CPU, not of {}", options.device().str());
    return at::empty(sizes, options);
  }

  Token all_reduce(const at::Tensor& t, ReduceOp op, CallSite site) override {
    const What w = what(OpKind::all_reduce, t, site, 0, op);
    return post(w, t, {}, [w, p = t.data_ptr()](Collectives& c, CallKey key) {
      c.all_reduce(key, w.dtype, w.red, p, w.count);
    });
  }
  Token reduce(const at::Tensor& t, int root, ReduceOp op, CallSite site) override {
    const What w = what(OpKind::reduce, t, site, root, op);
    return post(w, t, {}, [w, p = t.data_ptr()](Collectives& c, CallKey key) {
      c.reduce(key, w.dtype, w.red, p, w.count, w.root);
    });
  }
  Token broadcast(const at::Tensor& t, int root, CallSite site) override {
    const What w = what(OpKind::broadcast, t, site, root);
    return post(w, t, {}, [w, p = t.data_ptr(), bytes = t.nbytes()](Collectives& c, CallKey key) {
      c.broadcast(key, p, bytes, w.root);
    });
  }
  Token all_gather(const at::Tensor& output, const at::Tensor& input, CallSite site) override {
    const What w = what(OpKind::all_gather, input, site);
    return post(w, input, output,
                [in = input.data_ptr(), out = output.data_ptr(), bytes = input.nbytes()](
                    Collectives& c, CallKey key) { c.all_gather(key, out, in, bytes); });
  }
  Token reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                       CallSite site) override {
    const What w = what(OpKind::reduce_scatter, output, site, 0, op);
    return post(w, input, output,
                [w, in = input.data_ptr(), out = output.data_ptr()](Collectives& c, CallKey key) {
                  c.reduce_scatter(key, w.dtype, w.red, out, in, w.count);
                });
  }
  Token gather(const at::Tensor& output, const at::Tensor& input, int root,
               CallSite site) override {
    const What w = what(OpKind::gather, input, site, root);
    return post(w, input, output,
                [w, in = input.data_ptr(), out = output.defined() ? output.data_ptr() : nullptr,
                 bytes = input.nbytes()](Collectives& c, CallKey key) {
                  c.gather(key, out, in, bytes, w.root);
                });
  }
  Token scatter(const at::Tensor& output, const at::Tensor& input, int root,
                CallSite site) override {
    const What w = what(OpKind::scatter, output, site, root);
    return post(w, input, output,
                [w, in = input.defined() ? input.data_ptr() : nullptr, out = output.data_ptr(),
                 bytes = output.nbytes()](Collectives& c, CallKey key) {
                  c.scatter(key, out, in, bytes, w.root);
                });
  }
  Token all_to_all(const at::Tensor& output, const at::Tensor& input,
                   const std::vector<int64_t>& output_counts,
                   const std::vector<int64_t>& input_counts, CallSite site) override {
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
  Token barrier(CallSite site) override {
    What w{OpKind::barrier};
    w.site = site;
    return post(w, {}, {}, [](Collectives& c, CallKey key) { c.barrier(key); });
  }

  Token send(const at::Tensor& t, int to, int tag, CallSite site) override {
    return post_message(OpKind::send, t, to, tag, site);
  }
  Token recv(const at::Tensor& t, int from, int tag, CallSite site) override {
    return post_message(OpKind::recv, t, from, tag, site);
  }

  void wait(Token token, Duration timeout) override {
    const auto at = held_.find(token.number);
    if (at == held_.end()) return;
    const std::shared_ptr<Call> call = at->second;
    if (call->message)
      wait_for_message(*call, timeout);
    else
      wait_for_collective(call, timeout);
    finish(token.number);
  }

  bool completed(Token token) override {
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

  int source(Token token) override {
    if (token.peer != kAnySource) return token.peer;
    const auto at = sources_.find(token.number);
    check<UsageError>(at != sources_.end(), "source() of a recv that is not complete");
    return at->second;
  }

  int64_t shared_bytes() const override { return 0; }

  // The group's thread and Gloo's move the calls; here what they held is let go of.
  void progress() override { reap(); }

  void abort(const std::string& why, AbortKind kind) override {
    Failure told{Failure::Kind::lost, world_rank(rank()), why};
    auto own = std::make_exception_ptr(Aborted("this rank gave up: " + why));
    if (kind == AbortKind::other) {
      told.text = fmt::format("rank {} failed after call {}: {}", rank(), calls_, why);
    } else {
      told.kind = kind == AbortKind::mismatch ? Failure::Kind::mismatch : Failure::Kind::timeout;
      own = exception_of(told);
    }
    {
      std::lock_guard lock(mutex_);
      if (failure_) return;
      failure_ = own;
    }
    if (size() == 1) return;
    world_->watch->fail(group_, told);
    messenger_->revoke();
    wake_.notify_all();
  }

  void when_complete(Token token, std::function<void()> done) override {
    const auto at = held_.find(token.number);
    if (at == held_.end()) return done();
    at->second->done = std::move(done);
  }

  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    check_usable();
    std::vector<int> world_ranks;
    int rank = -1;
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] == this->rank()) rank = static_cast<int>(i);
      world_ranks.push_back(world_rank(members[i]));
    }
    auto made = std::make_shared<GlooBackend>(world_, name, rank, world_ranks, timeout());
    made->connect("", "", Deadline::after(timeout()), messenger_.get());
    return made;
  }

 private:
  using Run = std::function<void(Collectives&, CallKey)>;
  struct Call {
    uint64_t seq = 0;
    What what;
    at::Tensor in, out;
    std::function<void()> done;
    Run run;
    std::atomic<bool> finished{false};  // of a collective
    Message message;
    int peer = -1;
    char byte = 0;  // stands for no elements
  };

  int world_rank(int r) const { return world_ranks_[static_cast<size_t>(r)]; }

  static What what(OpKind op, const at::Tensor& t, CallSite site, int root = 0,
                   ReduceOp red = ReduceOp::sum) {
    What w{op};
    w.dtype = reduced_as(t.scalar_type()).value_or(DType::u8);
    w.red = static_cast<RedOp>(red);
    w.root = root;
    w.count = static_cast<size_t>(t.numel());
    w.site = site;
    return w;
  }

  // ── posting (the user's thread) ──

  Token post(const What& w, const at::Tensor& in, const at::Tensor& out, Run run) {
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

  Token post_message(OpKind op, const at::Tensor& t, int peer, int tag, CallSite site) {
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

  Token hold(const std::shared_ptr<Call>& call, Kind kind, int peer) {
    if (held_.size() >= reap_at_) {  // whose Works were dropped
      reap();
      reap_at_ = std::max(kManyHeld, 2 * held_.size());
    }
    const Token token{++number_, peer, kind};
    held_[token.number] = call;
    return token;
  }

  void finish(uint64_t number) {
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

  void reap() {
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

  // ── waiting (the user's thread) ──

  std::string text_of(const Call& call) const {
    if (!call.message && call.seq) return fmt::format("call {}, {}", call.seq, call.what.text());
    std::string who = call.peer == kAnySource ? "any rank" : fmt::format("rank {}", call.peer);
    return fmt::format("{} {}, {}", call.what.op == OpKind::send ? "send to" : "recv from", who,
                       call.what.text());
  }

  void wait_for_message(Call& call, Duration timeout) {
    Messenger::Outcome outcome;
    const auto start = Clock::now();
    try {
      outcome = messenger_->wait(call.message, Deadline::after(timeout));
    } catch (const MessageLost& e) {
      fail_now(diagnose(e, text_of(call)));
    }
    if (outcome == Messenger::Outcome::complete) return;
    if (outcome == Messenger::Outcome::late)
      fail_now({Failure::Kind::timeout, call.peer < 0 ? -1 : world_rank(call.peer),
                fmt::format("{} did not complete within {:.3g} s of rank {}{}. {}", text_of(call),
                            seconds_since(start), rank(), candidates(call), kAdvice)});
    check_usable();
  }

  /// Whoever a message from any rank could have come from.
  std::string candidates(const Call& call) {
    if (call.peer != kAnySource) return "";
    const auto said = words();
    std::string text;
    for (int r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      const auto at = said.find(r);
      text += fmt::format("{}rank {} {}", text.empty() ? " (" : "; ", r, last_words(at, said));
    }
    return text + ")";
  }

  void wait_for_collective(const std::shared_ptr<Call>& call, Duration timeout) {
    const auto start = Clock::now();
    const Deadline deadline = Deadline::after(timeout);
    Duration pause = std::min<Duration>(kStall, timeout / 3);
    Deadline look = Deadline::after(pause);
    bool said = false;
    std::unique_lock lock(mutex_);
    for (;;) {
      done_.wait_for(lock, std::min(look.remaining(), deadline.remaining()),
                     [&] { return call->finished || failure_; });
      if (call->finished) return;
      if (failure_) std::rethrow_exception(failure_);
      const auto stuck = running_ ? running_ : queue_.empty() ? call : queue_.front();
      lock.unlock();
      if (!said) {
        said = true;
        world_->watch->say(
            group_, fmt::format("{} {} {}", stuck->seq, stuck->what.digest(), stuck->what.text()));
      } else if (auto desync = compare_words(*stuck)) {
        fail_now(*desync);
      } else {
        pause *= 2;
      }
      if (deadline.expired()) fail_now(timed_out(*stuck, seconds_since(start)));
      look = Deadline::after(pause);
      lock.lock();
    }
  }

  struct Words {
    uint64_t seq = 0, digest = 0;
    std::string text;
  };
  /// What each rank of the group said last, by rank here.
  std::map<int, Words> words() {
    const auto all = world_->watch->words(group_, world_ranks_);
    std::map<int, Words> out;
    for (int r = 0; r < size(); ++r) {
      const auto at = all.find(world_rank(r));
      if (at == all.end()) continue;
      char* rest = nullptr;
      Words& w = out[r];
      w.seq = std::strtoull(at->second.c_str(), &rest, 10);
      w.digest = std::strtoull(rest, &rest, 10);
      w.text = rest + (*rest == ' ');
    }
    return out;
  }

  static std::string last_words(std::map<int, Words>::const_iterator at,
                                const std::map<int, Words>& said) {
    return at == said.end()
               ? "has said nothing"
               : fmt::format("waited last in call {}, {}", at->second.seq, at->second.text);
  }

  std::optional<Failure> compare_words(const Call& call) {
    for (auto& [r, theirs] : words()) {
      if (theirs.seq != call.seq || theirs.digest == call.what.digest()) continue;
      const bool first = rank() < r;
      return Failure{
          Failure::Kind::mismatch, world_rank(r),
          fmt::format("call {}: rank {} called {}, but rank {} called {}. Every rank must make "
                      "the same calls in the same order",
                      call.seq, first ? rank() : r, first ? call.what.text() : theirs.text,
                      first ? r : rank(), first ? theirs.text : call.what.text())};
    }
    return std::nullopt;
  }

  Failure timed_out(const Call& call, double seconds) {
    if (auto desync = compare_words(call)) return *desync;
    const auto said = words();
    if (const std::string silence = world_->watch->silence(); !silence.empty())
      return {Failure::Kind::timeout, -1,
              fmt::format("call {}, {}: no result within {:.3g} s of rank {}. {}", call.seq,
                          call.what.text(), seconds, rank(), silence)};
    std::vector<int> missing;
    std::string last;
    for (int r = 0; r < size(); ++r) {
      const auto at = said.find(r);
      if (r == rank() || (at != said.end() && at->second.seq >= call.seq)) continue;
      missing.push_back(r);
      last += fmt::format("{}rank {} {}", last.empty() ? "" : "; ", r, last_words(at, said));
    }
    if (missing.empty())
      return {Failure::Kind::timeout, -1,
              fmt::format("call {}, {}: the ranks did not get through within {:.3g} s of rank {}. "
                          "{}",
                          call.seq, call.what.text(), seconds, rank(), kAdvice)};
    return {Failure::Kind::timeout, world_rank(missing[0]),
            fmt::format("call {}, {}: rank {} did not arrive within {:.3g} s of rank {} ({}). {}",
                        call.seq, call.what.text(), name_ranks(missing), seconds, rank(), last,
                        kAdvice)};
  }

  // ── failing (any thread) ──

  static constexpr const char* kAdvice =
      "Such a rank is stopped, slower than the timeout of the group, or has made other calls";

  static std::exception_ptr exception_of(const Failure& failure, int rank = -1) {
    try {
      raise(failure, rank);
    } catch (...) {
      return std::current_exception();
    }
  }

  /// The first cause is known.
  void settle(const Failure& failure) {
    {
      std::lock_guard lock(mutex_);
      if (!failure_) failure_ = exception_of(failure, rank());
      if (messenger_) messenger_->revoke();
      if (connecting_) connecting_->give_up();
    }
    wake_.notify_all();
    done_.notify_all();
  }

  [[noreturn]] void fail_now(const Failure& failure) {
    settle(world_->watch->fail(group_, failure));
    check_usable();
    std::abort();  // settle() set it
  }

  /// Why a connection broke: what somebody told, else what can be seen from here.
  Failure diagnose(const MessageLost& lost, const std::string& where) {
    const int peer = lost.peer < 0 ? -1 : world_rank(lost.peer);
    if (auto told = world_->watch->cause(group_, peer, kPatience)) return *told;
    if (peer < 0)
      return {Failure::Kind::lost, -1,
              fmt::format("rank {} lost its connections while it waited in {}: {}", rank(), where,
                          lost.what())};
    if (world_->watch->has_left(group_, peer))
      return {Failure::Kind::mismatch, peer,
              fmt::format("rank {} left while rank {} waits in {}. Every rank must make the same "
                          "calls",
                          lost.peer, rank(), where)};
    return {Failure::Kind::lost, peer,
            fmt::format("rank {} lost the connection to rank {} while it waited in {}: {}", rank(),
                        lost.peer, where, lost.what())};
  }

  void leave() {
    std::string unfinished;
    {
      std::lock_guard lock(mutex_);
      if (!failure_ && running_)
        unfinished = text_of(*running_);
      else if (!failure_ && !queue_.empty())
        unfinished = text_of(*queue_.front());
    }
    if (!unfinished.empty())
      abort("it left while " + unfinished + ", was under way", AbortKind::other);
    bool in_order;
    {
      std::lock_guard lock(mutex_);
      in_order = !failure_;
    }
    // Messages that nobody waited for may still be wanted.
    for (const Deadline patience = Deadline::after(kStall); in_order && !patience.expired();) {
      reap();
      if (std::none_of(held_.begin(), held_.end(),
                       [](auto& h) { return h.second->what.op == OpKind::send; }))
        break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    world_->watch->leave(group_, in_order);
  }

  // ── the group's thread ──

  void carry() {
    ThreadRankScope label(world_->rank);
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || failure_ || !queue_.empty(); });
      if (stop_ || failure_) break;
      running_ = queue_.front();
      queue_.pop_front();
      lock.unlock();
      const bool carried = carry_one(*running_);
      lock.lock();
      if (!carried) break;
      running_->finished = true;
      running_.reset();
      // Without the lock, or whoever wakes would sleep again at once.
      lock.unlock();
      done_.notify_all();
      lock.lock();
    }
    running_.reset();
    queue_.clear();
  }

  bool carry_one(Call& call) {
    Failure failure;
    try {
      call.run(*collectives_, {call.seq, call.what.digest()});
      return true;
    } catch (const Revoked&) {
      return false;
    } catch (const MessageLost& e) {
      failure = diagnose(e, text_of(call));
    } catch (const std::exception& e) {
      failure = {Failure::Kind::resource, world_rank(rank()),
                 fmt::format("rank {} could not do {}: {}", rank(), text_of(call), e.what())};
    }
    settle(world_->watch->fail(group_, failure));
    return false;
  }

  const std::shared_ptr<World> world_;
  const std::string group_;
  const std::vector<int> world_ranks_;
  uint64_t calls_ = 0, number_ = 0;
  size_t reap_at_ = kManyHeld;
  std::map<uint64_t, int> sources_;  // of messages from any rank

  std::mutex mutex_;
  std::condition_variable wake_;  // the group's thread
  std::condition_variable done_;  // who waits for a call
  std::exception_ptr failure_;
  std::shared_ptr<Connecting> connecting_;  // until there is a messenger
  std::unique_ptr<Messenger> messenger_;
  std::optional<Collectives> collectives_;          // of the group's thread
  std::map<uint64_t, std::shared_ptr<Call>> held_;  // of the user's
  std::deque<std::shared_ptr<Call>> queue_;
  std::shared_ptr<Call> running_;
  bool stop_ = false;
  std::thread carrier_;
};

}  // namespace

std::shared_ptr<Backend> gloo_backend(const BackendSpec& spec) {
  const Deadline deadline = Deadline::after(spec.timeout);
  auto world = make_world(spec, "gloo", deadline);
  std::vector<int> ranks;
  for (int r = 0; r < spec.size; ++r) ranks.push_back(r);
  auto made = std::make_shared<GlooBackend>(world, spec.name, spec.rank, ranks, spec.timeout);
  if (spec.size == 1) return made;
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  const std::string host = data_address(*world->store, spec.rank, spec.size, spec.store->describe(),
                                        deadline, [&] { made->check_usable(); });
  made->connect(host, interface ? interface : "", deadline, nullptr);
  return made;
}

bool has_gloo() { return true; }

}  // namespace trireme::detail
