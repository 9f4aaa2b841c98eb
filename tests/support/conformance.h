// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/comm/group.h"

// What every backend must do: each operation, compared with values that every rank can work out for
// itself. One body; the tests choose backend, ranks, dtypes and shapes. Values are small integers,
// exact in every dtype.
namespace trireme::testing {

using Sizes = std::vector<int64_t>;

struct Conformance {
  Group g;
  at::ScalarType dtype;
  at::Device device = at::kCPU;
  int n = g.size(), me = g.rank();

  at::TensorOptions options() const { return at::TensorOptions().dtype(dtype).device(device); }

  /// Rank r's tensor. Products of two stay in an int8 for eight ranks.
  at::Tensor of(int r, const Sizes& sizes, bool small = false) const {
    const int64_t count = c10::multiply_integers(sizes);
    at::Tensor line = at::arange(count, at::TensorOptions().dtype(at::kLong).device(device));
    if (dtype == at::kBool) return (line + r).remainder(3).eq(0).view(sizes);
    return (small ? (line + r).remainder(3).eq(0).to(at::kLong) + 1
                  : (line * 7 + r * 3).remainder(11))
        .view(sizes)
        .to(dtype);
  }
  void same(const at::Tensor& got, const at::Tensor& want, const std::string& what) const {
    trireme::check<Error>(got.sizes() == want.sizes() && got.contiguous().equal(want.to(dtype)),
                          "rank {} of {}: {} of {}{} gives another value", me, n, what,
                          c10::toString(dtype), shape_text(got.sizes()));
  }
  /// avg multiplies by a rounded 1/n.
  void same_average(const at::Tensor& got, const at::Tensor& want, const std::string& what) const {
    const double ulp = dtype == at::kBFloat16 ? 8e-3 : dtype == at::kHalf ? 1e-3 : 1e-6;
    trireme::check<Error>(
        got.sizes() == want.sizes() && got.contiguous().allclose(want.to(dtype), ulp, 0),
        "rank {} of {}: {} of {}{} gives another value", me, n, what, c10::toString(dtype),
        shape_text(got.sizes()));
  }
  static std::string shape_text(at::IntArrayRef sizes) {
    std::string text = "[";
    for (int64_t s : sizes) text += (text.size() > 1 ? "," : "") + std::to_string(s);
    return text + "]";
  }
  bool has(Collective op) const { return g.supports(op, dtype, device.type()); }
  bool has(ReduceOp op) const { return g.supports(op, dtype); }

  /// The reduction of every rank's tensor, one after the other.
  at::Tensor reduced(ReduceOp op, const Sizes& sizes) const {
    const bool small = op == ReduceOp::product;
    auto wide = [&](int r) {
      at::Tensor t = of(r, sizes, small);
      return dtype == at::kBool || at::isComplexType(dtype) ? t : t.to(at::kLong);
    };
    at::Tensor all = wide(0);
    for (int r = 1; r < n; ++r) {
      at::Tensor t = wide(r);
      switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
          all = all + t;
          break;
        case ReduceOp::min:
          all = at::isComplexType(dtype) ? all : at::minimum(all, t);
          break;
        case ReduceOp::max:
          all = at::isComplexType(dtype) ? all : at::maximum(all, t);
          break;
        case ReduceOp::product:
          all = dtype == at::kBool ? all.logical_and(t) : all * t;
          break;
        case ReduceOp::band:
          all = at::bitwise_and(all, t);
          break;
        case ReduceOp::bor:
          all = at::bitwise_or(all, t);
          break;
        case ReduceOp::bxor:
          all = at::bitwise_xor(all, t);
          break;
      }
    }
    return all.to(dtype);
  }

  /// A strided tensor with these values.
  static at::Tensor strided(const at::Tensor& values) {
    Sizes twice = values.sizes().vec();
    twice.push_back(2);
    at::Tensor t = at::zeros(twice, values.options()).select(-1, 1);
    t.copy_(values);
    return t;
  }

  void reductions(const Sizes& sizes) const {
    for (auto op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::product,
                    ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
      if (!has(op)) continue;
      const bool small = op == ReduceOp::product;
      at::Tensor want = reduced(op, sizes);
      auto mine = [&] {
        at::Tensor t = of(me, sizes, small);
        return op == ReduceOp::avg ? t * n : t;
      };
      auto compare = [&](const at::Tensor& got, const at::Tensor& right, const std::string& what) {
        op == ReduceOp::avg ? same_average(got, right, what) : same(got, right, what);
      };
      const std::string name = "reduction " + std::to_string(static_cast<int>(op));
      if (has(Collective::all_reduce)) {
        at::Tensor t = mine();
        g_().all_reduce(t, op).wait();
        compare(t, want, "all_reduce, " + name);
        t = strided(mine());
        g_().all_reduce(t, op).wait();
        compare(t, want, "all_reduce of a strided tensor, " + name);
      }
      const int root = n / 2;
      if (has(Collective::reduce)) {
        at::Tensor t = mine();
        g_().reduce(t, root, op).wait();
        compare(t, me == root ? want : mine(), "reduce, " + name);
      }
      if (has(Collective::reduce_scatter)) {
        // Rank q gets the reduction of the q-th parts, which are the same on all: rows of want + q
        // would overflow small types, so each part is the whole tensor.
        std::vector<at::Tensor> parts(static_cast<size_t>(n), mine());
        at::Tensor out = at::empty(sizes, options());
        g_().reduce_scatter(out, parts, op).wait();
        compare(out, want, "reduce_scatter, " + name);
      }
    }
    if (has(Collective::all_reduce) && c10::isFloatingType(dtype)) {
      at::Tensor t = at::full(sizes, 1.0, options());
      g_().all_reduce(t, premul_sum(me + 1.0)).wait();
      same(t, at::full(sizes, n * (n + 1) / 2, options()), "all_reduce, premul_sum");
    }
  }

  void movements(const Sizes& sizes) const {
    Group group = g;
    const int root = n - 1;
    if (has(Collective::broadcast)) {
      at::Tensor t = strided(of(me, sizes));
      group.broadcast(t, root).wait();
      same(t, of(root, sizes), "broadcast");
    }
    auto empties = [&] {
      std::vector<at::Tensor> list;
      for (int r = 0; r < n; ++r) list.push_back(at::empty(sizes, options()));
      return list;
    };
    if (has(Collective::all_gather)) {
      auto all = empties();
      group.all_gather(all, of(me, sizes)).wait();
      for (int r = 0; r < n; ++r) same(all[size_t(r)], of(r, sizes), "all_gather");
      // Parts of different sizes: rank r has r + 1 rows, and rank 1 none.
      auto part = [&](int r) {
        Sizes s = sizes;
        s.insert(s.begin(), r == 1 ? 0 : r + 1);
        return s;
      };
      std::vector<at::Tensor> uneven;
      for (int r = 0; r < n; ++r) uneven.push_back(at::empty(part(r), options()));
      group.all_gather(uneven, of(me, part(me))).wait();
      for (int r = 0; r < n; ++r) same(uneven[size_t(r)], of(r, part(r)), "uneven all_gather");
    }
    if (has(Collective::gather)) {
      auto all = me == root ? empties() : std::vector<at::Tensor>();
      group.gather(all, of(me, sizes), root).wait();
      for (size_t r = 0; r < all.size(); ++r)
        same(all[r], of(static_cast<int>(r), sizes), "gather");
    }
    if (has(Collective::scatter)) {
      std::vector<at::Tensor> parts;
      if (me == root)
        for (int r = 0; r < n; ++r) parts.push_back(of(r + 1, sizes));
      at::Tensor out = strided(of(me, sizes));
      group.scatter(out, parts, root).wait();
      same(out, of(me + 1, sizes), "scatter");
    }
    if (has(Collective::all_to_all)) {
      std::vector<at::Tensor> in, out = empties();
      for (int r = 0; r < n; ++r) in.push_back(of(me * n + r, sizes));
      group.all_to_all(out, in).wait();
      for (int r = 0; r < n; ++r) same(out[size_t(r)], of(r * n + me, sizes), "all_to_all");
      // Rank r sends (r + q) % 3 rows to rank q.
      const int64_t row = 5;
      std::vector<int64_t> to, from;
      int64_t rows_in = 0, rows_out = 0;
      for (int q = 0; q < n; ++q) {
        to.push_back((me + q) % 3);
        from.push_back((q + me) % 3);
        rows_in += to.back();
        rows_out += from.back();
      }
      at::Tensor rows = of(me, {rows_in, row}), got = at::empty({rows_out, row}, options());
      group.all_to_all_single(got, rows, from, to).wait();
      int64_t at = 0;
      for (int q = 0; q < n; ++q) {
        int64_t theirs = 0, skip = 0;
        for (int k = 0; k < n; ++k) {
          if (k < me) skip += (q + k) % 3;
          theirs += (q + k) % 3;
        }
        same(got.narrow(0, at, from[size_t(q)]),
             of(q, {theirs, row}).narrow(0, skip, from[size_t(q)]), "uneven all_to_all_single");
        at += from[size_t(q)];
      }
    }
    if (has(Collective::permute)) {
      std::vector<int> next;
      for (int r = 0; r < n; ++r) next.push_back((r + 1) % n);
      at::Tensor out = strided(of(me, sizes));
      group.permute(out, of(me, sizes), next).wait();
      same(out, of((me + n - 1) % n, sizes), "permute");
    }
  }

  void pairs(const Sizes& sizes, bool any_source = true) const {
    if (!has(Collective::send) || n == 1) return;
    Group group = g;
    const int next = (me + 1) % n, before = (me + n - 1) % n;
    if (device.is_cuda()) {  // NCCL has no tags
      at::Tensor got = at::empty(sizes, options());
      for (Work& w : group.batch_isend_irecv(
               {{P2POp::isend, of(me, sizes), next}, {P2POp::irecv, got, before}}))
        w.wait();
      same(got, of(before, sizes), "irecv");
      return;
    }
    // A ring whose sends cross, two tags, received in the other order.
    at::Tensor first = at::empty(sizes, options()), second = at::empty(sizes, options());
    auto works = group.batch_isend_irecv({{P2POp::isend, of(me, sizes), next, 1},
                                          {P2POp::isend, of(me + 5, sizes), next, 2},
                                          {P2POp::irecv, second, before, 2},
                                          {P2POp::irecv, first, before, 1}});
    for (Work& w : works) w.wait();
    same(first, of(before, sizes), "irecv of tag 1");
    same(second, of(before + 5, sizes), "irecv of tag 2");
    if (!any_source) return;
    if (me != 0) {
      group.send(of(me, sizes), 0, 9).wait();
      return;
    }
    std::vector<bool> came(static_cast<size_t>(n));
    for (int i = 1; i < n; ++i) {
      at::Tensor t = at::empty(sizes, options());
      Work w = group.recv(t, kAnySource, 9);
      w.wait();
      const int from = w.source();
      trireme::check<Error>(from > 0 && from < n && !came[size_t(from)],
                            "a message from any source says it came from {}", from);
      came[size_t(from)] = true;
      same(t, of(from, sizes), "recv from any source");
    }
  }

  void lists() const {
    Group group = g;
    if (!has(Collective::all_reduce) || !has(ReduceOp::sum)) return;
    std::vector<at::Tensor> list{of(me, {3}), of(me, {0}), strided(of(me, {4, 5}))};
    group.all_reduce_coalesced(list).wait();
    same(list[0], reduced(ReduceOp::sum, {3}), "all_reduce_coalesced");
    same(list[2], reduced(ReduceOp::sum, {4, 5}), "all_reduce_coalesced");
    if (has(Collective::all_gather)) {
      std::vector<at::Tensor> in{of(me, {2}), of(me, {3, 2})};
      std::vector<at::Tensor> out{at::empty({n * 2}, options()), at::empty({n * 3, 2}, options())};
      group.all_gather_into_tensor_coalesced(out, in).wait();
      for (int r = 0; r < n; ++r) {
        same(out[0].narrow(0, r * 2, 2), of(r, {2}), "all_gather_into_tensor_coalesced");
        same(out[1].narrow(0, r * 3, 3), of(r, {3, 2}), "all_gather_into_tensor_coalesced");
      }
    }
    if (has(Collective::reduce_scatter)) {
      std::vector<at::Tensor> in{of(me, {n * 2}), of(me, {n})};
      std::vector<at::Tensor> out{at::empty({2}, options()), at::empty({1}, options())};
      group.reduce_scatter_tensor_coalesced(out, in).wait();
      same(out[0], reduced(ReduceOp::sum, {n * 2}).narrow(0, me * 2, 2),
           "reduce_scatter_tensor_coalesced");
      same(out[1], reduced(ReduceOp::sum, {n}).narrow(0, me, 1), "reduce_scatter_tensor_coalesced");
    }
  }

  /// Calls that are waited for in another order than they were made.
  void many_under_way() const {
    if (!has(Collective::all_reduce) || !has(ReduceOp::max)) return;
    Group group = g;
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(of(me + i, {1000}));
      works.push_back(group.all_reduce(tensors.back(), ReduceOp::max));
    }
    for (size_t i = works.size(); i-- > 0;) works[i].wait();
    for (int i = 0; i < 20; ++i) {
      at::Tensor want = of(i, {1000});
      for (int r = 1; r < n; ++r) want = at::maximum(want, of(r + i, {1000}));
      same(tensors[size_t(i)], want, "one of many all_reduce");
    }
  }

 private:
  Group g_() const { return g; }
};

inline const std::vector<at::ScalarType>& all_dtypes() {
  static const std::vector<at::ScalarType> list{
      at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,          at::kInt,
      at::kShort,  at::kChar,  at::kByte, at::kBool,     at::kComplexDouble, at::kComplexFloat};
  return list;
}

/// Everything, on this group.
inline void conform(Group g, const std::vector<at::ScalarType>& dtypes,
                    const std::vector<Sizes>& shapes, bool any_source = true,
                    at::Device device = at::kCPU) {
  for (auto dtype : dtypes) {
    Conformance c{g, dtype, device};
    for (const Sizes& sizes : shapes) {
      c.reductions(sizes);
      c.movements(sizes);
      c.pairs(sizes, any_source);
    }
    c.lists();
    if (dtype != at::kBool && !at::isComplexType(dtype)) c.many_under_way();
  }
  g.barrier();
  g.monitored_barrier(std::chrono::seconds(20));
}

}  // namespace trireme::testing
