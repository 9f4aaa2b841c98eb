// SPDX-License-Identifier: Apache-2.0
// Ulysses (Jacobs et al., DeepSpeed, 2023): each rank gives up its positions of most heads for all
// positions of some, attends as one rank does, and gets its positions back.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/layers/attention.h"
#include "trireme/layers/context_parallel/attend_across.h"
#include "trireme/layers/tensor_parallel/exchange.h"
#include "trireme/layers/tensor_parallel/kept.h"

namespace trireme::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

/// Which heads each rank gets, of some tensors that travel together.
struct Exchange {
  Across across;
  std::vector<int64_t> heads;             // of each tensor, all of them
  std::vector<std::vector<Part>> parts;   // by tensor and rank: parts may be the same heads
  std::vector<std::vector<Part>> places;  // by rank

  int ranks() const { return across.cp.size(); }
  size_t own() const { return static_cast<size_t>(across.cp.rank()); }
};

// Elements of one message: [batch, places, heads of all tensors, d].
at::Tensor message(const Exchange& e, size_t places_of, size_t heads_of, const at::Tensor& like) {
  int64_t heads = 0;
  for (const auto& parts : e.parts) heads += parts[heads_of].length;
  return reachable_empty(e.across.cp.group(),
                         {like.size(0), count_of(e.places[places_of]), heads, like.size(3)}, like);
}

void exchange(const Exchange& e, Tensors& received, const Tensors& sent) {
  Group group = e.across.cp.group();
  const Span span("exposed_comm", "wait for heads of other positions");
  group.all_to_all(received, sent, e.across.site).wait();
}

/// All positions of this rank's heads, of this rank's positions of all heads.
Tensors to_heads(const Exchange& e, const Tensors& own) {
  Tensors sent, received;
  for (size_t r = 0; r < static_cast<size_t>(e.ranks()); ++r) {
    sent.push_back(message(e, e.own(), r, own[0]));
    received.push_back(message(e, r, e.own(), own[0]));
    int64_t at = 0;
    for (size_t i = 0; i < own.size(); ++i) {
      const Part& heads = e.parts[i][r];
      sent[r].narrow(2, at, heads.length).copy_(own[i].narrow(2, heads.begin, heads.length));
      at += heads.length;
    }
  }
  exchange(e, received, sent);
  Tensors all;
  int64_t at = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const int64_t heads = e.parts[i][e.own()].length;
    all.push_back(at::empty({own[i].size(0), e.across.time, heads, own[i].size(3)},
                            own[i].options().requires_grad(false)));
    for (size_t r = 0; r < received.size(); ++r) {
      int64_t place = 0;
      for (const Part& range : e.places[r]) {
        all[i]
            .narrow(1, range.begin, range.length)
            .copy_(received[r].narrow(2, at, heads).narrow(1, place, range.length));
        place += range.length;
      }
    }
    at += heads;
  }
  return all;
}

/// The way back; what several ranks have of one head is added.
Tensors to_places(const Exchange& e, const Tensors& all) {
  Tensors sent, received;
  for (size_t r = 0; r < static_cast<size_t>(e.ranks()); ++r) {
    sent.push_back(message(e, r, e.own(), all[0]));
    received.push_back(message(e, e.own(), r, all[0]));
    int64_t at = 0;
    for (const at::Tensor& t : all) {
      int64_t place = 0;
      for (const Part& range : e.places[r]) {
        sent[r]
            .narrow(2, at, t.size(2))
            .narrow(1, place, range.length)
            .copy_(t.narrow(1, range.begin, range.length));
        place += range.length;
      }
      at += t.size(2);
    }
  }
  exchange(e, received, sent);
  Tensors own;
  std::vector<int64_t> at(received.size(), 0);
  for (size_t i = 0; i < all.size(); ++i) {
    own.push_back(
        at::empty({all[i].size(0), count_of(e.places[e.own()]), e.heads[i], all[i].size(3)},
                  all[i].options().requires_grad(false)));
    int64_t done = 0;  // heads come in order, and several times if ranks have the same ones
    for (size_t r = 0; r < received.size(); ++r) {
      const Part& heads = e.parts[i][r];
      const at::Tensor to = own[i].narrow(2, heads.begin, heads.length),
                       from = received[r].narrow(2, at[r], heads.length);
      if (heads.end() > done)
        to.copy_(from);
      else
        to.add_(from);
      done = heads.end();
      at[r] += heads.length;
    }
  }
  return own;
}

struct ToHeads : torch::autograd::Function<ToHeads> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const Exchange& e) {
    keep(ctx, e);
    return to_heads(e, {q, k, v});
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    check_once();
    variable_list d = to_places(kept<Exchange>(ctx), grads);
    d.emplace_back();
    return d;
  }
};

struct ToPlaces : torch::autograd::Function<ToPlaces> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& out, const Exchange& e) {
    keep(ctx, e);
    return to_places(e, {out})[0];
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor()};
    check_once();
    return {to_heads(kept<Exchange>(ctx), {grads[0]})[0], at::Tensor()};
  }
};

}  // namespace

at::Tensor all_to_all_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const at::Tensor& starts, const Across& across) {
  const int64_t heads = q.size(2), kv_heads = k.size(2), ranks = across.cp.size();
  const auto fault = fault_of_context_heads(heads, kv_heads, ranks);
  check<UsageError>(fault.empty(), "context_attention: {}", fault);
  Exchange in{across, {heads, kv_heads, kv_heads}, std::vector<std::vector<Part>>(3), {}};
  for (int64_t r = 0; r < ranks; ++r) {
    const HeadParts parts = split_heads(heads, kv_heads, ranks, r);
    in.parts[0].push_back(parts.queries);
    in.parts[1].push_back(parts.keys);
    in.parts[2].push_back(parts.keys);
    in.places.push_back(context_places(across.time, ranks, r, across.cp.balance()));
  }
  const Exchange back{across, {heads}, {in.parts[0]}, in.places};
  const auto all = ToHeads::apply(q, k, v, in);
  return ToPlaces::apply(attention(all[0], all[1], all[2], {0, 0, starts}).out, back);
}

}  // namespace trireme::detail
