// SPDX-License-Identifier: Apache-2.0
// Random collectives between ranks as threads, compared with a plain reference. scripts/soak runs
// it:
//   soak_collectives --seed 7 [--calls 200] [--plan]
// The same seed gives the same ranks, calls, dtypes and sizes; --plan prints them and runs nothing.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/support/conformance.h"
#include "trireme/comm/start/run.h"

namespace trireme::testing {
namespace {

enum class Kind {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  ring,
  barrier,
  count
};
constexpr const char* kNames[] = {"all_reduce",     "broadcast", "reduce",  "all_gather",
                                  "reduce_scatter", "gather",    "scatter", "all_to_all",
                                  "ring",           "barrier"};
constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt,
                                     at::kLong,  at::kChar,   at::kByte, at::kShort};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max,
                             ReduceOp::product};

struct Call {
  Kind kind = Kind::barrier;
  at::ScalarType dtype = at::kFloat;
  ReduceOp op = ReduceOp::sum;
  int64_t count = 0;  // elements of a rank's part
  int root = 0;
  bool in_arena = false, strided = false;
  int wait_after = 0;             // calls issued before this one is waited for
  std::vector<int64_t> splits{};  // all_to_all: rows from rank i to rank j, at i * ranks + j

  std::string text() const {
    return fmt::format("{} of {} {}, op {}, root {}{}{}, waited for {} calls later",
                       kNames[int(kind)], count, c10::toString(dtype), int(op), root,
                       in_arena ? ", in the arena" : "", strided ? ", strided" : "", wait_after);
  }
};

struct Plan {
  int ranks = 1;
  std::vector<Call> calls;
};

Plan make_plan(uint64_t seed, int calls) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  Plan plan;
  plan.ranks = 1 + static_cast<int>(below(5));
  for (int i = 0; i < calls; ++i) {
    Call c;
    c.kind = static_cast<Kind>(below(static_cast<uint64_t>(Kind::count)));
    c.dtype = kTypes[below(std::size(kTypes))];
    c.op = kOps[below(std::size(kOps))];
    c.count = 1 + static_cast<int64_t>(below(uint64_t{1} << below(19)));
    c.root = static_cast<int>(below(static_cast<uint64_t>(plan.ranks)));
    c.in_arena = below(2) == 0;
    c.strided = !c.in_arena && below(4) == 0;
    c.wait_after = static_cast<int>(below(4));
    if (c.kind == Kind::all_to_all)
      for (int k = 0; k < plan.ranks * plan.ranks; ++k)
        c.splits.push_back(static_cast<int64_t>(below(6)));
    plan.calls.push_back(std::move(c));
  }
  return plan;
}

// A call under way, and what to compare once it is complete.
struct Posted {
  Work work;
  std::function<void()> compare;
  size_t due = 0;
};

Posted post(Group& g, const Call& c) {
  const Conformance t{g, c.dtype};
  const int n = t.n, me = t.me;
  const Sizes one{c.count}, all{c.count * n};
  const std::string what = c.text();
  const auto memory = [&](const Sizes& sizes) {
    if (c.in_arena) return g.empty(sizes, t.options());
    return c.strided ? at::empty({sizes[0], 2}, t.options()).select(1, 0)
                     : at::empty(sizes, t.options());
  };
  const auto filled = [&](const at::Tensor& from) {
    at::Tensor m = memory({from.numel()});
    return m.copy_(from);
  };
  const ReduceOp op = t.has(c.op) ? c.op : ReduceOp::sum;
  const auto reduced_to = [t, op, what](const at::Tensor& got, const at::Tensor& want) {
    op == ReduceOp::avg ? t.same_average(got, want, what) : t.same(got, want, what);
  };
  // What this rank gives to a reduction: a mean of multiples of n is exact.
  const auto given = [&](const Sizes& sizes) {
    at::Tensor x = t.of(me, sizes, op == ReduceOp::product);
    return op == ReduceOp::avg ? x * n : x;
  };
  const auto part = [&](const at::Tensor& whole, int r) {
    return whole.narrow(0, r * c.count, c.count);
  };
  switch (c.kind) {
    case Kind::all_reduce: {
      at::Tensor x = filled(given(one));
      return {g.all_reduce(x, op), [=] { reduced_to(x, t.reduced(op, one)); }};
    }
    case Kind::broadcast: {
      at::Tensor x = filled(t.of(me, one));
      return {g.broadcast(x, c.root), [=] { t.same(x, t.of(c.root, one), what); }};
    }
    case Kind::reduce: {
      at::Tensor x = filled(given(one));
      return {g.reduce(x, c.root, op), [=] {
                if (me == c.root) reduced_to(x, t.reduced(op, one));
              }};
    }
    case Kind::all_gather: {
      at::Tensor in = filled(t.of(me, one)), out = memory(all);
      return {g.all_gather_into_tensor(out, in), [=] {
                for (int r = 0; r < n; ++r)
                  t.same(out.narrow(0, r * c.count, c.count), t.of(r, one), what);
              }};
    }
    case Kind::reduce_scatter: {
      at::Tensor in = filled(given(all)), out = memory(one);
      return {g.reduce_scatter_tensor(out, in, op),
              [=] { reduced_to(out, t.reduced(op, all).narrow(0, me * c.count, c.count)); }};
    }
    case Kind::gather: {
      at::Tensor in = filled(t.of(me, one));
      std::vector<at::Tensor> out;
      for (int r = 0; me == c.root && r < n; ++r) out.push_back(memory(one));
      return {g.gather(out, in, c.root), [=] {
                for (size_t r = 0; r < out.size(); ++r)
                  t.same(out[r], t.of(static_cast<int>(r), one), what);
              }};
    }
    case Kind::scatter: {
      std::vector<at::Tensor> in;
      for (int r = 0; me == c.root && r < n; ++r) in.push_back(filled(part(t.of(me, all), r)));
      at::Tensor out = memory(one);
      return {g.scatter(out, in, c.root),
              [=] { t.same(out, t.of(c.root, all).narrow(0, me * c.count, c.count), what); }};
    }
    case Kind::all_to_all: {
      const auto rows = [splits = c.splits, n](int from, int to) {
        return splits[static_cast<size_t>(from * n + to)];
      };
      const int64_t width = 1 + c.count % 1000;
      const auto sent_by = [=](int from) {
        int64_t sum = 0;
        for (int to = 0; to < n; ++to) sum += rows(from, to);
        return t.of(from, {sum, width});
      };
      std::vector<int64_t> in_splits, out_splits;
      int64_t arriving = 0;
      for (int r = 0; r < n; ++r) {
        in_splits.push_back(rows(me, r));
        out_splits.push_back(rows(r, me));
        arriving += rows(r, me);
      }
      at::Tensor in = sent_by(me).contiguous(), out = at::empty({arriving, width}, t.options());
      return {g.all_to_all_single(out, in, out_splits, in_splits), [=] {
                int64_t at = 0;
                for (int from = 0; from < n; ++from) {
                  int64_t begin = 0;
                  for (int to = 0; to < me; ++to) begin += rows(from, to);
                  t.same(out.narrow(0, at, rows(from, me)),
                         sent_by(from).narrow(0, begin, rows(from, me)), what);
                  at += rows(from, me);
                }
              }};
    }
    case Kind::ring: {
      const int next = (me + 1) % n, before = (me + n - 1) % n;
      if (n == 1) return {};
      at::Tensor in = filled(t.of(me, one)), out = memory(one);
      std::vector<Work> works =
          g.batch_isend_irecv({{P2POp::isend, in, next}, {P2POp::irecv, out, before}});
      return {Work(std::move(works)), [=] { t.same(out, t.of(before, one), what); }};
    }
    default:
      g.barrier();
      return {};
  }
}

void run_rank(Group& g, const Plan& plan) {
  std::vector<Posted> under_way;
  const auto settle = [&](size_t now) {
    for (size_t i = 0; i < under_way.size();) {
      if (under_way[i].due > now) {
        ++i;
        continue;
      }
      Posted p = std::move(under_way[i]);
      under_way.erase(under_way.begin() + static_cast<long>(i));
      p.work.wait();
      if (p.compare) p.compare();
    }
  };
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    under_way.push_back(post(g, plan.calls[i]));
    under_way.back().due = i + static_cast<size_t>(plan.calls[i].wait_after);
    settle(i);
  }
  settle(plan.calls.size() + 10);
}

int usage(const std::string& why) {
  fmt::print(stderr, "soak_collectives: {}: use --seed N, --calls N and --plan\n", why);
  return 2;
}

int run(int argc, char** argv) {
  uint64_t seed = 1;
  int calls = 200;
  bool plan_alone = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&](auto& into) {
      char* end = nullptr;
      if (++i >= argc) return false;
      into = static_cast<std::decay_t<decltype(into)>>(std::strtoull(argv[i], &end, 10));
      return end != argv[i] && *end == 0;
    };
    if (word == "--plan")
      plan_alone = true;
    else if (word == "--seed" ? !number(seed) : word == "--calls" ? !number(calls) : true)
      return usage("'" + word + "' is not understood");
  }
  const Plan plan = make_plan(seed, calls);
  if (plan_alone) {
    fmt::print("{} ranks\n", plan.ranks);
    for (const Call& c : plan.calls) fmt::print("{}\n", c.text());
    return 0;
  }
  try {
    run_threads(
        plan.ranks, [&](Group g) { run_rank(g, plan); }, std::chrono::seconds(60));
  } catch (const std::exception& error) {
    fmt::print(stderr, "soak_collectives: {} ranks, seed {}: {}\n", plan.ranks, seed, error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace trireme::testing

int main(int argc, char** argv) { return trireme::testing::run(argc, argv); }
