// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "trireme/base/check.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/hybrid/hybrid_backend.h"

// Calls as steps.
namespace trireme::detail {

namespace {

using flight::OpKind;

// What a rank sends across hosts at once, while the next part is reduced inside: it and what it is
// reduced with stay in the core's cache. (4 MiB segments took 1.2 times as long.)
constexpr int64_t kPartBytes = 512 << 10;

}  // namespace

Token HybridBackend::whole(What what, std::function<Token()> post, std::vector<at::Tensor> held) {
  Pending p{what};
  p.held = std::move(held);
  p.add(flat, std::move(post));
  return launch(std::move(p));
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

Token HybridBackend::gather(const at::Tensor& output, const at::Tensor& input, int root,
                            CallSite site) {
  return whole({words_of(OpKind::gather, input, root), site},
               [=, b = groups_[flat]] { return b->gather(output, input, root, site); },
               {output, input});
}

Token HybridBackend::scatter(const at::Tensor& output, const at::Tensor& input, int root,
                             CallSite site) {
  return whole({words_of(OpKind::scatter, output, root), site},
               [=, b = groups_[flat]] { return b->scatter(output, input, root, site); },
               {output, input});
}

Token HybridBackend::all_to_all(const at::Tensor& output, const at::Tensor& input,
                                const std::vector<int64_t>& output_counts,
                                const std::vector<int64_t>& input_counts, CallSite site) {
  return whole({words_of(OpKind::all_to_all, input), site},
               [=, b = groups_[flat]] {
                 return b->all_to_all(output, input, output_counts, input_counts, site);
               },
               {output, input});
}

// Pairs do not queue behind collectives: only the two ranks know of them.
Token HybridBackend::send(const at::Tensor& t, int to, int tag, CallSite site) {
  return pair({words_of(OpKind::send, t, to, ReduceOp::sum, tag), site}, to,
              [&](Backend& b, int peer) { return b.send(t, peer, tag, site); });
}

Token HybridBackend::recv(const at::Tensor& t, int from, int tag, CallSite site) {
  check<UsageError>(from != kAnySource,
                    "recv at {}:{}: the hybrid backend takes no message from just any rank, since "
                    "they come by two roads; name the rank",
                    site.file, site.line);
  return pair({words_of(OpKind::recv, t, from, ReduceOp::sum, tag), site}, from,
              [&](Backend& b, int peer) { return b.recv(t, peer, tag, site); });
}

}  // namespace trireme::detail
