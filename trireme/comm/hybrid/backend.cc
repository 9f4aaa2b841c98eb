// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/hybrid/backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "trireme/base/check.h"
#include "trireme/comm/hybrid/hosts.h"
#include "trireme/comm/hybrid/layout.h"
#include "trireme/comm/local_backend.h"
#include "trireme/store/store.h"

// A call is a list of steps: calls of the three groups below, and copies. A group's steps are
// posted in one order that every rank follows, the order in which they were planned, whatever
// completes when; so ranks that run ahead never make a group's calls differ.
namespace trireme::detail {
namespace {

constexpr int64_t kSegmentBytes = 4 << 20;  // crosses hosts while the next one is reduced inside

// Where a step runs; each lane is a group.
enum Lane : uint8_t { inside, across, flat, kLanes };

struct Step {
  Lane lane;
  std::function<Token()> post;
  std::vector<size_t> after;  // steps of this call that it needs, by number
  bool posted = false, complete = false;
  Token token;
};

struct Pending {
  uint64_t number = 0;
  std::vector<Step> steps;
  std::vector<at::Tensor> held;
  std::function<void()> finish, done;

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
        even_(layout_.is_even()) {
    groups_[inside] = make_inside();
    const auto peers = layout_.peers_across(rank());
    // Where hosts are uneven only their leaders talk across.
    if (even_ || layout_.index(rank()) == 0)
      groups_[across] =
          make_across(peers, fmt::format("across{}", even_ ? layout_.index(rank()) : 0));
    groups_[flat] = make_across({}, "flat");
  }

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
    return whole([=, b = groups_[flat]] { return b->gather(output, input, root, site); },
                 {output, input});
  }
  Token scatter(const at::Tensor& output, const at::Tensor& input, int root,
                CallSite site) override {
    return whole([=, b = groups_[flat]] { return b->scatter(output, input, root, site); },
                 {output, input});
  }
  Token all_to_all(const at::Tensor& output, const at::Tensor& input,
                   const std::vector<int64_t>& output_counts,
                   const std::vector<int64_t>& input_counts, CallSite site) override {
    return whole(
        [=, b = groups_[flat]] {
          return b->all_to_all(output, input, output_counts, input_counts, site);
        },
        {output, input});
  }
  // Pairs do not queue behind collectives: only the two ranks know of them.
  Token send(const at::Tensor& t, int to, int tag, CallSite site) override {
    usable();
    return pair(to, [&](Backend& b, int peer) { return b.send(t, peer, tag, site); });
  }
  Token recv(const at::Tensor& t, int from, int tag, CallSite site) override {
    usable();
    check<UsageError>(
        from != kAnySource,
        "recv at {}:{}: the hybrid backend takes no message from just any rank, since "
        "they come by two roads; name the rank",
        site.file, site.line);
    return pair(from, [&](Backend& b, int peer) { return b.recv(t, peer, tag, site); });
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
    if (!failure_) failure_ = std::make_exception_ptr(Aborted("this rank gave up: " + why));
    for (auto& group : groups_)
      if (group) group->abort(why, kind);
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
    Token token, below;
    Lane lane;
    std::function<void()> done;
  };

  void usable() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  std::shared_ptr<Backend> make_inside();
  std::shared_ptr<Backend> make_across(const std::vector<int>& members, const std::string& name);
  Token launch(Pending p);
  Token whole(std::function<Token()> post, std::vector<at::Tensor> held) {
    Pending p;
    p.held = std::move(held);
    p.add(flat, std::move(post));
    return launch(std::move(p));
  }
  template <class F>
  Token pair(int peer, F post);
  bool is_complete(Token token) const;
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
  std::exception_ptr failure_;
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
        [&](const std::string& key, Deadline until) { return store->get(prefix + key, until); }};
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
Token HybridBackend::pair(int peer, F post) {
  const bool here = layout_.host(peer) == layout_.host(rank());
  const Lane lane = here ? inside : flat;
  Pair p;
  p.below = post(*groups_[lane], here ? layout_.index(peer) : peer);
  p.lane = lane;
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

void HybridBackend::step(Pending& p) {
  for (Step& s : p.steps)
    if (s.posted && !s.complete)
      s.complete = s.token.kind == 0 || groups_[s.lane]->completed(s.token);
}

void HybridBackend::progress() {
  usable();
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
        s.token = s.post();
        s.posted = true;
        s.complete = s.token.kind == 0 || groups_[s.lane]->completed(s.token);
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
      if (pairs_[i].below.kind && !groups_[pairs_[i].lane]->completed(pairs_[i].below)) {
        ++i;
        continue;
      }
      Pair p = std::move(pairs_[i]);
      pairs_.erase(pairs_.begin() + static_cast<long>(i));
      if (p.done) p.done();
    }
    for (auto& group : groups_)
      if (group) group->progress();
  } catch (const std::exception& e) {
    if (!failure_) {
      // What one group knows is a fact of the whole: the others are told, on other hosts too.
      failure_ = std::current_exception();
      const AbortKind kind = dynamic_cast<const Timeout*>(&e)    ? AbortKind::timeout
                             : dynamic_cast<const Mismatch*>(&e) ? AbortKind::mismatch
                                                                 : AbortKind::other;
      for (auto& group : groups_) {
        if (!group) continue;
        try {
          group->abort(e.what(), kind);
        } catch (const std::exception&) {  // it has failed already
        }
      }
    }
    throw;
  }
}

void HybridBackend::wait(Token token, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  for (int turn = 0;; ++turn) {
    progress();
    if (is_complete(token)) return;
    if (deadline.expired()) {
      const char* lane = "";
      for (const Pending& p : pending_)
        for (const Step& s : p.steps)
          if (s.posted && !s.complete && !*lane)
            lane = s.lane == inside ? " inside the host" : " across hosts";
      const std::string why = fmt::format(
          "a call of the hybrid group {} did not complete within {:.3g} s of rank {}: it waits{}. "
          "A "
          "rank is stopped, slower than the timeout of the group, or has made other calls",
          identity.name, std::chrono::duration<double>(timeout).count(), rank(), lane);
      failure_ = std::make_exception_ptr(Timeout(why, {rank(), -1, "", 0}));
      for (auto& group : groups_)
        if (group) group->abort(why, AbortKind::timeout);
      usable();
    }
    if (turn < 1000)
      ::sched_yield();
    else
      ::usleep(50);
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
      plan_segments(count, local, kSegmentBytes / static_cast<int64_t>(t.element_size()));
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
  Pending p;
  at::Tensor line = t.view({-1});
  p.held = {line};
  add_all_reduce(p, line, op, site);
  return launch(std::move(p));
}

Token HybridBackend::broadcast(const at::Tensor& t, int root, CallSite site) {
  Pending p;
  p.held = {t};
  auto in = groups_[inside];
  auto out = groups_[across];
  if (!even_) return whole([=, b = groups_[flat]] { return b->broadcast(t, root, site); }, {t});
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
  if (!even_) {
    Pending p;
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
  Pending p;
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
  if (!even_)
    return whole([=, b = groups_[flat]] { return b->all_gather(output, input, site); },
                 {output, input});
  auto in = groups_[inside];
  auto out = groups_[across];
  const int64_t n = input.numel(), hosts = layout_.hosts();
  at::Tensor column = at::empty({hosts * n}, input.options().requires_grad(false));
  at::Tensor all = at::empty({size() * n}, input.options().requires_grad(false));
  Pending p;
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
  Pending p;
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
  Pending p;
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
