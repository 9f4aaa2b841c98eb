// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "trireme/base/check.h"
#include "trireme/comm/call_words.h"
#include "trireme/comm/hybrid/hybrid_backend.h"

// Divides calls into steps.
namespace trireme::detail {

namespace {

// The size that a rank sends across hosts at a time while the next part is reduced inside: it and
// what it is reduced with stay in the core's cache. (4 MiB segments took 1.2 times as long.)
constexpr int64_t kPartBytes = 512 << 10;

/// Of one tensor, in place.
Token post_on(Backend& b, Collective op, const at::Tensor& t, CallSite site, int root = 0,
              ReduceOp red = ReduceOp::sum) {
  return b.post(
      {.op = op, .reduction = red, .root = root, .input = &t, .output = &t, .site = site});
}
Token post_reduce(Backend& b, const at::Tensor& t, int root, ReduceOp red, CallSite site) {
  return post_on(b, Collective::reduce, t, site, root, red);
}
Token post_all_reduce(Backend& b, const at::Tensor& t, ReduceOp red, CallSite site) {
  return post_on(b, Collective::all_reduce, t, site, 0, red);
}
Token post_all_gather(Backend& b, const at::Tensor& output, const at::Tensor& input,
                      CallSite site) {
  return b.post({.op = Collective::all_gather, .input = &input, .output = &output, .site = site});
}
Token post_reduce_scatter(Backend& b, const at::Tensor& output, const at::Tensor& input,
                          ReduceOp red, CallSite site) {
  return b.post({.op = Collective::reduce_scatter,
                 .reduction = red,
                 .input = &input,
                 .output = &output,
                 .site = site});
}

/// A call that is made later and owns what it points to.
struct LaterCall {
  explicit LaterCall(const Call& of) : call(of) {
    if (of.input) input = *of.input;
    if (of.output) output = *of.output;
    if (of.input_counts) input_counts = *of.input_counts;
    if (of.output_counts) output_counts = *of.output_counts;
  }
  Token post(Backend& b) const {
    Call now = call;
    now.input = &input;
    now.output = &output;
    now.input_counts = &input_counts;
    now.output_counts = &output_counts;
    return b.post(now);
  }
  Call call;
  at::Tensor input, output;
  std::vector<int64_t> input_counts, output_counts;
};

}  // namespace

Token HybridBackend::post(const Call& call) {
  switch (call.op) {
    case Collective::all_reduce:
      return all_reduce(call);
    case Collective::reduce:
      return reduce(call);
    case Collective::reduce_scatter:
      return reduce_scatter(call);
    case Collective::broadcast:
      return even_ ? broadcast(call) : whole(call);
    case Collective::all_gather:
      return even_ ? all_gather(call) : whole(call);
    case Collective::barrier:
      return barrier(call);
    case Collective::send:
    case Collective::recv:
      return message(call);
    default:
      return whole(call);
  }
}

Token HybridBackend::whole(const Call& call) {
  Pending p{what(call)};
  const LaterCall later(call);
  p.held = {later.output, later.input};
  p.add(flat, [later, b = groups_[flat]] { return later.post(*b); });
  return launch(std::move(p));
}

// Messages do not queue behind collectives, because only two ranks know of them.
Token HybridBackend::message(const Call& call) {
  const int peer = call.root;
  check<UsageError>(call.op == Collective::send || peer != kAnySource,
                    "recv at {}:{}: the hybrid backend cannot receive from any rank, because "
                    "messages arrive on two paths; name the rank",
                    call.site.file, call.site.line);
  usable();
  const bool here = layout_.host(peer) == layout_.host(rank());
  Pair p{what(call)};
  p.lane = at_ = here ? inside : flat;
  Call below = call;
  if (here) below.root = layout_.index(peer);
  try {
    p.below = groups_[p.lane]->post(below);
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
    const size_t first = p.add(inside, [=] { return post_reduce(*in, t, 0, below, site); });
    std::vector<size_t> ready{first};
    if (out)
      ready = {p.add(across, [=] { return post_all_reduce(*out, t, below, site); }, {first})};
    p.add(
        inside,
        [=, this] {
          if (divide && out) scale(t);
          return post_on(*in, Collective::broadcast, t, site);
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
            return post_all_gather(*in, part(k), mine(k), site);
          },
          {crossed[static_cast<size_t>(k)]});
  };
  for (int64_t k = 0; k < plan.segments; ++k) {
    const auto i = static_cast<size_t>(k);
    reduced[i] =
        p.add(inside, [=] { return post_reduce_scatter(*in, mine(k), part(k), below, site); });
    crossed[i] =
        p.add(across, [=] { return post_all_reduce(*out, mine(k), below, site); }, {reduced[i]});
    if (k > 0) gather_back(k - 1);
  }
  if (plan.segments) gather_back(plan.segments - 1);
  if (plan.tail) {
    at::Tensor rest = t.narrow(0, whole, plan.tail);
    const size_t first = p.add(inside, [=] { return post_all_reduce(*in, rest, below, site); });
    p.add(across, [=] { return post_all_reduce(*out, rest, below, site); }, {first});
    if (divide) {
      auto before = p.finish;
      p.finish = [=, this] {
        if (before) before();
        scale(rest);
      };
    }
  }
}

Token HybridBackend::all_reduce(const Call& call) {
  Pending p{what(call)};
  at::Tensor line = call.input->view({-1});
  p.held = {line};
  add_all_reduce(p, line, call.reduction, call.site);
  return launch(std::move(p));
}

Token HybridBackend::broadcast(const Call& call) {
  const at::Tensor& t = *call.input;
  const int root = call.root;
  const CallSite site = call.site;
  Pending p{what(call)};
  p.held = {t};
  auto in = groups_[inside];
  auto out = groups_[across];
  // First among the ranks of the root's index, then inside each host.
  std::vector<size_t> ready;
  if (layout_.index(rank()) == layout_.index(root))
    ready = {p.add(across, [=, host = layout_.host(root)] {
      return post_on(*out, Collective::broadcast, t, site, host);
    })};
  p.add(
      inside,
      [=, index = layout_.index(root)] {
        return post_on(*in, Collective::broadcast, t, site, index);
      },
      ready);
  return launch(std::move(p));
}

Token HybridBackend::reduce(const Call& call) {
  const at::Tensor& t = *call.input;
  const int root = call.root;
  const ReduceOp op = call.reduction, below = op == ReduceOp::avg ? ReduceOp::sum : op;
  const CallSite site = call.site;
  Pending p{what(call)};
  if (!even_) {
    p.held = {t};
    p.add(flat, [=, b = groups_[flat]] { return post_reduce(*b, t, root, below, site); });
    if (op == ReduceOp::avg && rank() == root) p.finish = [=, this] { scale(t); };
    return launch(std::move(p));
  }
  auto in = groups_[inside];
  auto out = groups_[across];
  const int index = layout_.index(root);
  const bool collects = layout_.index(rank()) == index;
  // Only the root's tensor may change, so other ranks that collect use a copy.
  at::Tensor work = collects && rank() != root ? t.clone() : t;
  p.held = {t, work};
  const size_t first = p.add(inside, [=] { return post_reduce(*in, work, index, below, site); });
  if (collects)
    p.add(across,
          [=, host = layout_.host(root)] { return post_reduce(*out, work, host, below, site); },
          {first});
  if (op == ReduceOp::avg && rank() == root) p.finish = [=, this] { scale(t); };
  return launch(std::move(p));
}

// Across first, so that each part crosses once to each host; then inside; then into rank order.
Token HybridBackend::all_gather(const Call& call) {
  const at::Tensor &output = *call.output, &input = *call.input;
  const CallSite site = call.site;
  auto in = groups_[inside];
  auto out = groups_[across];
  const int64_t n = input.numel(), hosts = layout_.hosts();
  at::Tensor column = at::empty({hosts * n}, input.options().requires_grad(false));
  at::Tensor all = at::empty({size() * n}, input.options().requires_grad(false));
  Pending p{what(call)};
  p.held = {output, input, column, all};
  const size_t first =
      p.add(across, [=] { return post_all_gather(*out, column, input.view({-1}), site); });
  p.add(inside, [=] { return post_all_gather(*in, all, column, site); }, {first});
  p.finish = [=, this] {
    at::NoGradGuard no_grad;
    for (int r = 0; r < size(); ++r)
      output.view({-1})
          .narrow(0, r * n, n)
          .copy_(all.narrow(0, (layout_.index(r) * hosts + layout_.host(r)) * n, n));
  };
  return launch(std::move(p));
}

Token HybridBackend::reduce_scatter(const Call& call) {
  const at::Tensor &output = *call.output, &input = *call.input;
  const ReduceOp op = call.reduction, below = op == ReduceOp::avg ? ReduceOp::sum : op;
  const CallSite site = call.site;
  Pending p{what(call)};
  if (!even_) {
    p.held = {output, input};
    p.add(flat,
          [=, b = groups_[flat]] { return post_reduce_scatter(*b, output, input, below, site); });
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
        p.add(inside, [=] { return post_reduce_scatter(*in, column, ordered, below, site); });
    p.add(across, [=] { return post_reduce_scatter(*out, output, column, below, site); }, {first});
  }
  if (op == ReduceOp::avg) p.finish = [=, this] { scale(output); };
  return launch(std::move(p));
}

Token HybridBackend::barrier(const Call& call) {
  const auto post_barrier = [site = call.site](Backend& b) {
    return b.post({.op = Collective::barrier, .site = site});
  };
  Pending p{what(call)};
  auto in = groups_[inside];
  std::vector<size_t> ready{p.add(inside, [=] { return post_barrier(*in); })};
  if (auto out = groups_[across])
    ready = {p.add(
        across, [=] { return post_barrier(*out); }, ready)};
  p.add(
      inside, [=] { return post_barrier(*in); }, ready);
  return launch(std::move(p));
}

}  // namespace trireme::detail
