// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/group.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>

#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"

namespace group_test {

using namespace trireme;

namespace {

constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                                     at::kLong,   at::kInt,   at::kByte};

void equal(const at::Tensor& got, const at::Tensor& want, const char* what) {
  trireme::check<Error>(got.equal(want), "{}: wrong result for {}", what,
                        c10::toString(got.scalar_type()));
}

at::Tensor of_rank(int rank, at::IntArrayRef sizes, at::ScalarType t) {
  int64_t n = c10::multiply_integers(sizes);
  return (at::arange(n, at::kLong).remainder(13) + rank).view(sizes).to(t);
}

}  // namespace

TEST(comm_group, every_dtype_contiguous_and_not_empty_and_scalar) {
  for (int n : {1, 2, 3, 8})
    run_threads(n, [n](Group g) {
      for (auto t : kTypes)
        for (const auto& sizes : std::vector<std::vector<int64_t>>{{}, {0}, {3, 5}, {40, 61}}) {
          const int64_t shift = int64_t{n} * (n - 1) / 2;
          at::Tensor x = of_rank(g.rank(), sizes, t);
          g.all_reduce(x).wait();
          equal(x, (of_rank(0, sizes, at::kLong) * n + shift).to(t), "all_reduce");
          std::vector<int64_t> twice = sizes;
          twice.push_back(2);
          at::Tensor strided = at::zeros(twice, t).select(-1, 1);
          strided.copy_(of_rank(g.rank(), sizes, t));
          g.broadcast(strided, n - 1).wait();
          equal(strided.contiguous(), of_rank(n - 1, sizes, t), "broadcast of a strided tensor");
          std::vector<at::Tensor> all;
          for (int r = 0; r < n; ++r) all.push_back(at::empty(sizes, t));
          g.all_gather(all, of_rank(g.rank(), sizes, t)).wait();
          for (int r = 0; r < n; ++r) equal(all[size_t(r)], of_rank(r, sizes, t), "all_gather");
          std::vector<at::Tensor> parts;
          for (int r = 0; r < n; ++r) parts.push_back(of_rank(r, sizes, t));
          at::Tensor out = at::empty(sizes, t);
          g.reduce_scatter(out, parts, ReduceOp::max).wait();
          equal(out, of_rank(g.rank(), sizes, t), "reduce_scatter");
          at::Tensor red = of_rank(g.rank(), sizes, t);
          g.reduce(red, 0, ReduceOp::min).wait();
          equal(red, of_rank(g.rank() ? g.rank() : 0, sizes, t), "reduce");
        }
    });
}

TEST(comm_group, arena_tensors_outlive_the_group_handle) {
  at::Tensor kept;
  run_threads(2, [&](Group g) {
    at::Tensor t = g.empty({100000}, at::kFloat);
    t.fill_(g.rank() + 1);
    g.all_reduce(t).wait();
    trireme::check<Error>(t[99999].item<float>() == 3, "sum");
    if (g.rank() == 0) kept = t;
  });
  EXPECT_EQ(kept[5].item<float>(), 3);
}

TEST(comm_group, avg_of_floats_scales_once) {
  run_threads(3, [](Group g) {
    at::Tensor t = at::full({10}, g.rank() * 3.0, at::kDouble);
    g.all_reduce(t, ReduceOp::avg).wait();
    equal(t, at::full({10}, (0.0 + 3.0 + 6.0) * (1.0 / 3), at::kDouble), "avg");
  });
}

TEST(comm_group, send_recv_moves_a_tensor_between_two_ranks) {
  run_threads(3, [](Group g) {
    if (g.rank() == 0) g.send(at::arange(1000000, at::kLong), 2, 7).wait();
    if (g.rank() == 2) {
      at::Tensor t = at::empty({1000000}, at::kLong);
      g.recv(t, 0, 7).wait();
      equal(t, at::arange(1000000, at::kLong), "recv");
    }
  });
}

TEST(comm_group, wrong_arguments_are_usage_errors_and_the_group_lives) {
  run_threads(2, [](Group g) {
    auto refuses = [&](auto f) {
      try {
        f();
      } catch (const UsageError&) {
        return;
      }
      fail<Error>("not refused");
    };
    refuses([&] { g.all_reduce(at::Tensor()); });
    refuses([&] { g.all_reduce(at::ones({2}, at::kBool)); });
    refuses([&] { g.broadcast(at::ones({2}), 2); });
    refuses([&] { g.all_gather_into_tensor(at::ones({3}), at::ones({2})); });
    refuses([&] { g.reduce_scatter_tensor(at::ones({2}), at::ones({3})); });
    refuses([&] { g.send(at::ones({2}), g.rank()); });
    at::Tensor t = at::ones({2});
    g.all_reduce(t).wait();
    equal(t, at::full({2}, 2.0f), "after refusals");
  });
  EXPECT_THROW(Group().rank(), UsageError);
}

TEST(comm_group, run_threads_rethrows_the_first_cause) {
  try {
    run_threads(3, [](Group g) {
      g.barrier();
      if (g.rank() == 1) throw NumericError("loss is nan");
      g.barrier();
    });
    FAIL() << "nothing thrown";
  } catch (const NumericError& e) {
    EXPECT_STREQ(e.what(), "loss is nan");
  }
}

TEST(comm_group, overlapping_calls_complete_in_any_order_of_waiting) {
  run_threads(2, [](Group g) {
    std::vector<at::Tensor> ts;
    std::vector<Work> works;
    for (int i = 0; i < 40; ++i) {
      ts.push_back(at::full({i * 997 + 1}, float(i)));
      works.push_back(g.all_reduce(ts.back()));
    }
    for (int i = 39; i >= 0; --i) {
      works[size_t(i)].wait();
      equal(ts[size_t(i)], at::full({i * 997 + 1}, 2.0f * i), "all_reduce");
    }
  });
}

}  // namespace group_test
