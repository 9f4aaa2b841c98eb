// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/hybrid/backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <sched.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/flight/call_text.h"
#include "trireme/comm/hybrid/ending.h"
#include "trireme/comm/hybrid/hosts.h"
#include "trireme/comm/hybrid/layout.h"
#include "trireme/comm/local_backend.h"
#include "trireme/store/store.h"

// A call is a list of steps: calls of the three groups below, and copies. A group's steps are
// posted in one order that every rank follows, the order in which they were planned, whatever
// completes when; so ranks that run ahead never make a group's calls differ.
namespace trireme::detail {
namespace {

using flight::OpKind;

constexpr Duration kStall = std::chrono::seconds(1);  // then a rank says what it waits in
// What a rank sends across hosts at once, while the next part is reduced inside: it and what it is
// reduced with stay in the core's cache. (4 MiB segments took 1.2 times as long.)
constexpr int64_t kPartBytes = 512 << 10;

// Where a step runs; each lane is a group.
enum Lane : uint8_t { inside, across, flat, kLanes };

struct Step {
  Lane lane;
  std::function<Token()> post;
  std::vector<size_t> after;  // steps of this call that it needs, by number
  bool posted = false, complete = false;
  Token token;
};

/// What the user called.
struct What {
  flight::CallWords words;
  CallSite site;

  std::string text() const {
    std::string t = flight::call_text(words.op, words.dtype, words.red, words.root, words.count);
    if (site.file && *site.file) t += fmt::format(" at {}:{}", site.file, site.line);
    return t;
  }
};

struct Pending {
  What what;
  uint64_t number = 0;
  std::vector<Step> steps{};
  std::vector<at::Tensor> held{};
  std::function<void()> finish{}, done{};

  size_t add(Lane lane, std::function<Token()> post, std::vector<size_t> after = {}) {
    steps.push_back({lane, std::move(post), std::move(after), false, false, {}});
    return steps.size() - 1;
  }
};

class HybridBackend final : public Backend, public std::enable_shared_from_this<HybridBackend> {
 public:
  HybridBackend(const BackendSpec& spec, HostLayout layout)
      : Backend(spec.rank, spec.size, spec.timeout),
        spec_(spec),
        layout_(std::move(layout)),
        even_(layout_.is_even()),
        ending_(*spec.store, rank(), size(), Deadline::after(timeout())) {
    groups_[inside] = make_inside();
    const auto peers = layout_.peers_across(rank());
    // Where hosts are uneven only their leaders talk across.
    if (even_ || layout_.index(rank()) == 0)
      groups_[across] =
          make_across(peers, fmt::format("across{}", even_ ? layout_.index(rank()) : 0));
    groups_[flat] = make_across({}, "flat");
  }

  // The groups below leave in the same way after this.
  ~HybridBackend() override { ending_.leave(!failure_); }

  const std::string& name() const override {
    static const std::string name = "hybrid";
    return name;
  }
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const override {
    return groups_[inside]->supports(op, dtype, device) &&
           groups_[flat]->supports(op, dtype, device);
  }
  bool supports(ReduceOp op, at::ScalarType dtype) const override {
    // avg is the sum, divided once.
    if (op == ReduceOp::avg && !groups_[inside]->supports(op, dtype)) return false;
    const ReduceOp below = op == ReduceOp::avg ? ReduceOp::sum : op;
    return groups_[inside]->supports(below, dtype) && groups_[flat]->supports(below, dtype);
  }
  at::Tensor empty(at::IntArrayRef sizes, at::TensorOptions options) override {
    return groups_[inside]->empty(sizes, options);
  }

  Token all_reduce(const at::Tensor& t, ReduceOp op, CallSite site) override;
  Token broadcast(const at::Tensor& t, int root, CallSite site) override;
  Token reduce(const at::Tensor& t, int root, ReduceOp op, CallSite site) override;
  Token all_gather(const at::Tensor& output, const at::Tensor& input, CallSite site) override;
  Token reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                       CallSite site) override;
  Token barrier(CallSite site) override;

  Token gather(const at::Tensor& output, const at::Tensor& input, int root,
               CallSite site) override {
    return whole({words_of(OpKind::gather, input, root), site},
                 [=, b = groups_[flat]] { return b->gather(output, input, root, site); },
                 {output, input});
  }
  Token scatter(const at::Tensor& output, const at::Tensor& input, int root,
                CallSite site) override {
    return whole({words_of(OpKind::scatter, output, root), site},
                 [=, b = groups_[flat]] { return b->scatter(output, input, root, site); },
                 {output, input});
  }
  Token all_to_all(const at::Tensor& output, const at::Tensor& input,
                   const std::vector<int64_t>& output_counts,
                   const std::vector<int64_t>& input_counts, CallSite site) override {
    return whole({words_of(OpKind::all_to_all, input), site},
                 [=, b = groups_[flat]] {
                   return b->all_to_all(output, input, output_counts, input_counts, site);
                 },
                 {output, input});
  }
  // Pairs do not queue behind collectives: only the two ranks know of them.
  Token send(const at::Tensor& t, int to, int tag, CallSite site) override {
    return pair({words_of(OpKind::send, t, to, ReduceOp::sum, tag), site}, to,
                [&](Backend& b, int peer) { return b.send(t, peer, tag, site); });
  }
  Token recv(const at::Tensor& t, int from, int tag, CallSite site) override {
    check<UsageError>(
        from != kAnySource,
        "recv at {}:{}: the hybrid backend takes no message from just any rank, since "
        "they come by two roads; name the rank",
        site.file, site.line);
    return pair({words_of(OpKind::recv, t, from, ReduceOp::sum, tag), site}, from,
                [&](Backend& b, int peer) { return b.recv(t, peer, tag, site); });
  }

  void wait(Token token, Duration timeout) override;
  bool completed(Token token) override {
    progress();
    return is_complete(token);
  }
  int source(Token token) override {
    check<UsageError>((token.kind & 0xf) == kPairKind, "source() of something that is no recv");
    return token.peer;
  }
  int64_t shared_bytes() const override { return groups_[inside]->shared_bytes(); }
  void progress() override;
  void abort(const std::string& why, AbortKind kind) override {
    if (failure_) return;
    Failure told{Failure::Kind::lost, rank(), why};
    if (kind == AbortKind::other)
      told.text = fmt::format("rank {} failed after call {}: {}", rank(), calls_, why);
    else
      told.kind = kind == AbortKind::mismatch ? Failure::Kind::mismatch : Failure::Kind::timeout;
    ending_.tell(told);
    failure_ = kind == AbortKind::other
                   ? std::make_exception_ptr(Aborted("this rank gave up: " + why))
                   : exception_of(told);
    end_groups(told);
  }
  void when_complete(Token token, std::function<void()> done) override {
    for (auto& p : pairs_)
      if (p.token.number == token.number && (token.kind & 0xf) == kPairKind) {
        p.done = std::move(done);
        return;
      }
    for (auto& p : pending_)
      if (p.number == token.number && (token.kind & 0xf) == kCallKind) {
        p.done = std::move(done);
        return;
      }
    done();
  }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override;

 private:
  static constexpr uint8_t kCallKind = 1, kPairKind = 2;
  struct Pair {
    What what;
    Token token{}, below{};
    Lane lane = flat;
    std::function<void()> done{};
  };

  void usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  std::exception_ptr exception_of(const Failure& failure) const {
    try {
      raise(failure, rank());
    } catch (...) {
      return std::current_exception();
    }
  }
  Failure in_own_numbers(const Error& e, Failure::Kind kind) const;
  void end_groups(const Failure& cause);
  [[noreturn]] void finish(const Failure& cause);
  [[noreturn]] void finish_because();
  Failure timed_out(Token token, Duration waited);
  std::shared_ptr<Backend> make_inside();
  std::shared_ptr<Backend> make_across(const std::vector<int>& members, const std::string& name);
  Token launch(Pending p);
  Token whole(What what, std::function<Token()> post, std::vector<at::Tensor> held) {
    Pending p{what};
    p.held = std::move(held);
    p.add(flat, std::move(post));
    return launch(std::move(p));
  }
  template <class F>
  Token pair(What what, int peer, F post);
  bool is_complete(Token token) const;
  bool completed_in(Lane lane, Token token);
  void step(Pending& p);
  void add_all_reduce(Pending& p, const at::Tensor& flat_tensor, ReduceOp op, CallSite site);
  void scale(const at::Tensor& t) const {
    at::NoGradGuard no_grad;
    t.mul_(1.0 / size());
  }

  BackendSpec spec_;
  HostLayout layout_;
  const bool even_;
  std::shared_ptr<Backend> groups_[kLanes];
  std::deque<Pending> pending_;
  std::deque<Pair> pairs_;
  uint64_t calls_ = 0, pair_calls_ = 0;
  uint64_t moves_ = 0;  // steps posted and complete
  Lane at_ = inside;    // the group that was asked last
  std::exception_ptr failure_;
  Ending ending_;
};

std::shared_ptr<Backend> HybridBackend::make_inside() {
  const auto& peers = layout_.peers_inside(rank());
  const int index = layout_.index(rank());
  if (peers.size() == 1)
    return local_thread_backend(std::make_shared<local::ThreadWorld>(1), 0, timeout());
  auto make_host = [store = spec_.store, host = layout_.host(rank()), timeout = timeout()](
                       int member, int members, const std::string& name) {
    const std::string prefix = fmt::format("inside{}/{}/", host, name);
    local::Exchange exchange{
        [&](const std::string& key, const std::string& value) { store->set(prefix + key, value); },
        [&](const std::string& key, Deadline until) { return store->get(prefix + key, until); },
        [&](const std::string& key) { return store->try_get(prefix + key); }};
    return local::process_host(member, members, exchange, Deadline::after(timeout));
  };
  return local_backend(make_host(index, static_cast<int>(peers.size()), "all"), timeout(),
                       spec_.store, make_host, "");
}

std::shared_ptr<Backend> HybridBackend::make_across(const std::vector<int>& members,
                                                    const std::string& name) {
  BackendSpec spec = spec_;
  spec.name = spec_.name + "." + name;
  spec.check = "";  // what is checked and recorded are the calls of this group
  spec.store = std::make_shared<PrefixStore>(spec_.store, name);
  if (!members.empty()) {
    spec.size = static_cast<int>(members.size());
    spec.rank =
        static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  }
  return make_backend(spec_.across, spec);
}

// ---- running steps -----------------------------------------------------------------------------

Token HybridBackend::launch(Pending p) {
  usable();
  p.number = ++calls_;
  const uint64_t number = p.number;
  pending_.push_back(std::move(p));
  progress();
  return {number, -1, kCallKind};
}

template <class F>
Token HybridBackend::pair(What what, int peer, F post) {
  usable();
  const bool here = layout_.host(peer) == layout_.host(rank());
  Pair p{what};
  p.lane = at_ = here ? inside : flat;
  try {
    p.below = post(*groups_[p.lane], here ? layout_.index(peer) : peer);
  } catch (const UsageError&) {
    throw;  // nothing was sent
  } catch (const std::exception&) {
    finish_because();
  }
  p.token = {++pair_calls_, peer, kPairKind};
  const Token token = p.token;
  pairs_.push_back(std::move(p));
  return token;
}

bool HybridBackend::is_complete(Token token) const {
  if ((token.kind & 0xf) == kPairKind)
    return std::none_of(pairs_.begin(), pairs_.end(),
                        [&](const Pair& p) { return p.token.number == token.number; });
  return pending_.empty() || token.number < pending_.front().number;
}

/// Asks a group below.
bool HybridBackend::completed_in(Lane lane, Token token) {
  at_ = lane;
  return token.kind == 0 || groups_[lane]->completed(token);
}

void HybridBackend::step(Pending& p) {
  for (Step& s : p.steps)
    if (s.posted && !s.complete && completed_in(s.lane, s.token)) {
      s.complete = true;
      ++moves_;
    }
}

void HybridBackend::progress() {
  usable();
  if (ending_.is_known()) finish(ending_.cause());
  try {
    for (Pending& p : pending_) step(p);
    // Each lane posts in the order of plans: its first step that is not ready holds up those after.
    bool open[kLanes] = {true, true, true};
    for (Pending& p : pending_) {
      for (Step& s : p.steps) {
        if (s.posted || !open[s.lane]) continue;
        const bool ready = std::all_of(s.after.begin(), s.after.end(),
                                       [&](size_t i) { return p.steps[i].complete; });
        if (!ready) {
          open[s.lane] = false;
          continue;
        }
        at_ = s.lane;
        s.token = s.post();
        s.posted = true;
        s.complete = completed_in(s.lane, s.token);
        ++moves_;
      }
    }
    while (!pending_.empty() &&
           std::all_of(pending_.front().steps.begin(), pending_.front().steps.end(),
                       [](const Step& s) { return s.complete; })) {
      Pending p = std::move(pending_.front());
      pending_.pop_front();
      if (p.finish) p.finish();
      if (p.done) p.done();
    }
    for (size_t i = 0; i < pairs_.size();) {
      if (!completed_in(pairs_[i].lane, pairs_[i].below)) {
        ++i;
        continue;
      }
      Pair p = std::move(pairs_[i]);
      pairs_.erase(pairs_.begin() + static_cast<long>(i));
      if (p.done) p.done();
    }
    for (Lane lane : {inside, across, flat}) {
      at_ = lane;
      if (groups_[lane]) groups_[lane]->progress();
    }
  } catch (const std::exception&) {
    if (failure_) throw;
    finish_because();
  }
}

// ---- failing -----------------------------------------------------------------------------------

/// What a group below said, which counts its ranks and calls in its own way.
Failure HybridBackend::in_own_numbers(const Error& e, Failure::Kind kind) const {
  std::vector<int> ranks;
  if (at_ == inside)
    ranks = layout_.peers_inside(rank());
  else if (at_ == across)
    ranks = layout_.peers_across(rank());
  if (ranks.empty()) return {kind, e.peer(), e.what()};
  const auto peer = static_cast<size_t>(e.peer());
  std::string text;
  for (int r : ranks) text += (text.empty() ? "" : ", ") + std::to_string(r);
  return {kind, peer < ranks.size() ? ranks[peer] : -1,
          fmt::format("{}, where rank {} count from 0: {}",
                      at_ == inside ? "inside a host" : "across hosts", text, e.what())};
}

void HybridBackend::end_groups(const Failure& cause) {
  const AbortKind kind = cause.kind == Failure::Kind::timeout    ? AbortKind::timeout
                         : cause.kind == Failure::Kind::mismatch ? AbortKind::mismatch
                                                                 : AbortKind::other;
  for (auto& group : groups_) {
    if (!group) continue;
    try {
      group->abort(cause.text, kind);
    } catch (const std::exception&) {  // it has failed already
    }
  }
}

void HybridBackend::finish(const Failure& cause) {
  failure_ = exception_of(cause);
  end_groups(cause);
  std::rethrow_exception(failure_);
}

/// What is being caught came from a group below.
void HybridBackend::finish_because() {
  try {
    throw;
  } catch (const PeerLost& e) {
    finish(ending_.explain(in_own_numbers(e, Failure::Kind::lost)));
  } catch (const Timeout& e) {
    finish(ending_.explain(in_own_numbers(e, Failure::Kind::timeout)));
  } catch (const Mismatch& e) {
    finish(ending_.explain(in_own_numbers(e, Failure::Kind::mismatch)));
  } catch (const std::exception& e) {  // this rank's own trouble
    const auto own = std::current_exception();
    abort(e.what(), AbortKind::other);
    failure_ = own;
    std::rethrow_exception(own);
  }
}

Failure HybridBackend::timed_out(Token token, Duration waited) {
  if ((token.kind & 0xf) == kCallKind)
    return ending_.timed_out(pending_.front().number, pending_.front().what.text(), waited);
  const auto& p = *std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& pair) {
    return pair.token.number == token.number;
  });
  return {Failure::Kind::timeout, token.peer,
          fmt::format("{} with tag {} did not complete within {:.3g} s of rank {}. Such a rank is "
                      "stopped, slower than the timeout of the group, or has made other calls",
                      p.what.text(), p.what.words.tag,
                      std::chrono::duration<double>(waited).count(), rank())};
}

void HybridBackend::wait(Token token, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  const Deadline stall = Deadline::after(std::min<Duration>(kStall, timeout / 3));
  bool said = false;
  uint64_t moves = moves_;
  auto moved = Clock::now();
  for (int turn = 0;; ++turn) {
    progress();
    if (is_complete(token)) return;
    if (turn < 1000) {
      ::sched_yield();
      continue;
    }
    if (!said && stall.expired() && !pending_.empty()) {
      said = true;
      ending_.say(pending_.front().number, pending_.front().what.text());
    }
    if (deadline.expired()) finish(ending_.tell(timed_out(token, timeout)));
    // A wait that lasts leaves the CPU to the others, and is late by a hundredth.
    const auto now = Clock::now();
    if (std::exchange(moves, moves_) != moves_) moved = now;
    std::this_thread::sleep_for(std::clamp<Duration>(
        (now - moved) / 100, std::chrono::microseconds(50), std::chrono::milliseconds(1)));
  }
}

// ---- the calls ---------------------------------------------------------------------------------

void HybridBackend::add_all_reduce(Pending& p, const at::Tensor& t, ReduceOp op, CallSite site) {
  const int64_t count = t.numel();
  const ReduceOp below = op == ReduceOp::avg ? ReduceOp::sum : op;
  const bool divide = op == ReduceOp::avg;
  auto in = groups_[inside];
  auto out = groups_[across];
  if (!even_) {  // through the leaders
    const size_t first = p.add(inside, [=] { return in->reduce(t, 0, below, site); });
    std::vector<size_t> ready{first};
    if (out) ready = {p.add(across, [=] { return out->all_reduce(t, below, site); }, {first})};
    p.add(
        inside,
        [=, this] {
          if (divide && out) scale(t);
          return in->broadcast(t, 0, site);
        },
        ready);
    return;
  }
  const int local = in->size();
  const SegmentPlan plan =
      plan_segments(count, local, local * kPartBytes / static_cast<int64_t>(t.element_size()));
  const int64_t whole = count - plan.tail;
  std::vector<size_t> reduced(static_cast<size_t>(plan.segments)),
      crossed(static_cast<size_t>(plan.segments));
  auto part = [=](int64_t k) { return t.narrow(0, plan.begin(k), plan.size(k, whole)); };
  auto mine = [=](int64_t k) {
    const int64_t each = plan.size(k, whole) / local;
    return part(k).narrow(0, each * in->rank(), each);
  };
  auto gather_back = [&](int64_t k) {
    p.add(inside,
          [=, this] {
            if (divide) scale(mine(k));
            return in->all_gather(part(k), mine(k), site);
          },
          {crossed[static_cast<size_t>(k)]});
  };
  for (int64_t k = 0; k < plan.segments; ++k) {
    const auto i = static_cast<size_t>(k);
    reduced[i] = p.add(inside, [=] { return in->reduce_scatter(mine(k), part(k), below, site); });
    crossed[i] = p.add(across, [=] { return out->all_reduce(mine(k), below, site); }, {reduced[i]});
    if (k > 0) gather_back(k - 1);
  }
  if (plan.segments) gather_back(plan.segments - 1);
  if (plan.tail) {
    at::Tensor rest = t.narrow(0, whole, plan.tail);
    const size_t first = p.add(inside, [=] { return in->all_reduce(rest, below, site); });
    p.add(across, [=] { return out->all_reduce(rest, below, site); }, {first});
    if (divide) {
      auto before = p.finish;
      p.finish = [=, this] {
        if (before) before();
        scale(rest);
      };
    }
  }
}

Token HybridBackend::all_reduce(const at::Tensor& t, ReduceOp op, CallSite site) {
  Pending p{{words_of(OpKind::all_reduce, t, 0, op), site}};
  at::Tensor line = t.view({-1});
  p.held = {line};
  add_all_reduce(p, line, op, site);
  return launch(std::move(p));
}

Token HybridBackend::broadcast(const at::Tensor& t, int root, CallSite site) {
  const What what{words_of(OpKind::broadcast, t, root), site};
  Pending p{what};
  p.held = {t};
  auto in = groups_[inside];
  auto out = groups_[across];
  if (!even_)
    return whole(what, [=, b = groups_[flat]] { return b->broadcast(t, root, site); }, {t});
  // First among those of the root's index, then inside each host.
  std::vector<size_t> ready;
  if (layout_.index(rank()) == layout_.index(root))
    ready = {
        p.add(across, [=, host = layout_.host(root)] { return out->broadcast(t, host, site); })};
  p.add(
      inside, [=, index = layout_.index(root)] { return in->broadcast(t, index, site); }, ready);
  return launch(std::move(p));
}

Token HybridBackend::reduce(const at::Tensor& t, int root, ReduceOp op, CallSite site) {
  const ReduceOp below = op == ReduceOp::avg ? ReduceOp::sum : op;
  Pending p{{words_of(OpKind::reduce, t, root, op), site}};
  if (!even_) {
    p.held = {t};
    p.add(flat, [=, b = groups_[flat]] { return b->reduce(t, root, below, site); });
    if (op == ReduceOp::avg && rank() == root) p.finish = [=, this] { scale(t); };
    return launch(std::move(p));
  }
  auto in = groups_[inside];
  auto out = groups_[across];
  const int index = layout_.index(root);
  const bool collects = layout_.index(rank()) == index;
  // Only the root's tensor changes: the others that collect do so in a copy.
  at::Tensor work = collects && rank() != root ? t.clone() : t;
  p.held = {t, work};
  const size_t first = p.add(inside, [=] { return in->reduce(work, index, below, site); });
  if (collects)
    p.add(across, [=, host = layout_.host(root)] { return out->reduce(work, host, below, site); },
          {first});
  if (op == ReduceOp::avg && rank() == root) p.finish = [=, this] { scale(t); };
  return launch(std::move(p));
}

// Across first, so that each part crosses once to each host; then inside; then into rank order.
Token HybridBackend::all_gather(const at::Tensor& output, const at::Tensor& input, CallSite site) {
  const What what{words_of(OpKind::all_gather, input), site};
  if (!even_)
    return whole(what, [=, b = groups_[flat]] { return b->all_gather(output, input, site); },
                 {output, input});
  auto in = groups_[inside];
  auto out = groups_[across];
  const int64_t n = input.numel(), hosts = layout_.hosts();
  at::Tensor column = at::empty({hosts * n}, input.options().requires_grad(false));
  at::Tensor all = at::empty({size() * n}, input.options().requires_grad(false));
  Pending p{what};
  p.held = {output, input, column, all};
  const size_t first =
      p.add(across, [=] { return out->all_gather(column, input.view({-1}), site); });
  p.add(inside, [=] { return in->all_gather(all, column, site); }, {first});
  p.finish = [=, this] {
    at::NoGradGuard no_grad;
    for (int r = 0; r < size(); ++r)
      output.view({-1})
          .narrow(0, r * n, n)
          .copy_(all.narrow(0, (layout_.index(r) * hosts + layout_.host(r)) * n, n));
  };
  return launch(std::move(p));
}

Token HybridBackend::reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                                    CallSite site) {
  const ReduceOp below = op == ReduceOp::avg ? ReduceOp::sum : op;
  Pending p{{words_of(OpKind::reduce_scatter, output, 0, op), site}};
  if (!even_) {
    p.held = {output, input};
    p.add(flat, [=, b = groups_[flat]] { return b->reduce_scatter(output, input, below, site); });
  } else {
    auto in = groups_[inside];
    auto out = groups_[across];
    const int64_t n = output.numel(), hosts = layout_.hosts();
    at::Tensor ordered = at::empty({size() * n}, input.options().requires_grad(false));
    {
      at::NoGradGuard no_grad;
      for (int r = 0; r < size(); ++r)
        ordered.narrow(0, (layout_.index(r) * hosts + layout_.host(r)) * n, n)
            .copy_(input.view({-1}).narrow(0, r * n, n));
    }
    at::Tensor column = at::empty({hosts * n}, input.options().requires_grad(false));
    p.held = {output, ordered, column};
    const size_t first =
        p.add(inside, [=] { return in->reduce_scatter(column, ordered, below, site); });
    p.add(across, [=] { return out->reduce_scatter(output, column, below, site); }, {first});
  }
  if (op == ReduceOp::avg) p.finish = [=, this] { scale(output); };
  return launch(std::move(p));
}

Token HybridBackend::barrier(CallSite site) {
  Pending p{{{.op = OpKind::barrier}, site}};
  auto in = groups_[inside];
  std::vector<size_t> ready{p.add(inside, [=] { return in->barrier(site); })};
  if (auto out = groups_[across])
    ready = {p.add(
        across, [=] { return out->barrier(site); }, ready)};
  p.add(
      inside, [=] { return in->barrier(site); }, ready);
  return launch(std::move(p));
}

std::shared_ptr<Backend> HybridBackend::subgroup(const std::vector<int>& members,
                                                 const std::string& name) {
  const bool one_host = std::all_of(members.begin(), members.end(), [&](int m) {
    return layout_.host(m) == layout_.host(members[0]);
  });
  if (one_host) {
    std::vector<int> indices;
    for (int m : members) indices.push_back(layout_.index(m));
    return groups_[inside]->subgroup(indices, name);
  }
  BackendSpec spec = spec_;
  spec.name = name;
  spec.size = static_cast<int>(members.size());
  spec.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  spec.store = std::make_shared<PrefixStore>(spec_.store, name);
  return hybrid_backend(spec);
}

}  // namespace

std::shared_ptr<Backend> hybrid_backend(const BackendSpec& spec) {
  check<UsageError>(spec.across == "gloo" || spec.across == "mpi" || spec.across == "nccl",
                    "the hybrid backend goes across hosts by gloo, mpi or nccl, not by '{}'",
                    spec.across);
  check<UsageError>(spec.store != nullptr, "the hybrid backend needs the job's store");
  return std::make_shared<HybridBackend>(
      spec,
      HostLayout(find_hosts(*spec.store, spec.rank, spec.size, Deadline::after(spec.timeout))));
}

}  // namespace trireme::detail
