// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/cast_hook.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"
#include "trireme/grad/reducer.h"

namespace cast_hook_test {

using namespace trireme;

namespace {

void expect(bool ok, const std::string& what) { check<Error>(ok, "{}", what); }

at::Tensor values(int64_t n, int rank) {
  at::Tensor t = at::empty({n}, at::kFloat);
  for (int64_t i = 0; i < n; ++i)
    t.data_ptr<float>()[i] = std::sin(0.61f * static_cast<float>(i) + static_cast<float>(rank));
  return t;
}

constexpr int64_t kGradients = 1000;
GradBucket bucket_of(Group& g, at::ScalarType type, at::ScalarType rounding) {
  at::Tensor flat = g.empty({kGradients}, at::dtype(type));
  flat.copy_(values(kGradients, g.rank()).to(rounding));
  return {0, true, flat, nullptr};
}

}  // namespace

TEST(grad_cast_hook, the_sum_is_the_one_of_rounded_gradients) {
  for (const char* name : {"fp16", "bf16"})
    for (int n : {1, 2, 3, 4})
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
        run_threads(n, [&](Group g) {
          const auto type = std::string(name) == "fp16" ? at::kHalf : at::kBFloat16;
          GradBucket bucket = bucket_of(g, at::kFloat, at::kFloat);
          CommHook hook = named_comm_hook(name);
          hook(g, bucket, op).wait();
          at::Tensor want = at::zeros({kGradients}, at::kDouble);
          for (int r = 0; r < n; ++r) want += values(kGradients, r).to(type).to(at::kDouble);
          if (op == ReduceOp::avg) want /= n;
          const double epsilon = type == at::kHalf ? 1.0 / 2048 : 1.0 / 256;
          const double most = op == ReduceOp::avg ? 1 : n;
          const at::Tensor got = bucket.buffer.to(at::kDouble);
          expect((got - want).abs().max().item<double>() <= epsilon * most, "the sum");
        });
}

TEST(grad_cast_hook, a_sum_in_float16_overflows_no_sooner_than_float32_on_each_rank) {
  run_threads(4, [&](Group g) {
    GradBucket bucket = bucket_of(g, at::kFloat, at::kFloat);
    bucket.buffer.fill_(40000);  // the sum, 160000, is beyond float16
    cast_hook(at::kHalf)(g, bucket, ReduceOp::sum).wait();
    expect(bucket.buffer[5].item<float>() == 160000, "the sum");
    bucket.buffer[7] = 1e6;  // beyond it on the way there: seen, not cut off
    cast_hook(at::kHalf)(g, bucket, ReduceOp::sum).wait();
    expect(std::isinf(bucket.buffer[7].item<float>()), "an overflow");
  });
}

TEST(grad_cast_hook, bfloat16_gradients_may_be_added_in_float32) {
  run_threads(3, [&](Group g) {
    GradBucket bucket = bucket_of(g, at::kBFloat16, at::kBFloat16);
    cast_hook(at::kFloat)(g, bucket, ReduceOp::sum).wait();
    at::Tensor want = at::zeros({kGradients}, at::kFloat);
    for (int r : {0, 2, 1}) want += values(kGradients, r).to(at::kBFloat16).to(at::kFloat);
    const at::Tensor got = bucket.buffer.to(at::kFloat);
    expect((got - want).abs().max().item<float>() <= 3.0f / 256, "the sum");
  });
}

TEST(grad_cast_hook, none_and_the_bucket_s_own_dtype_are_the_plain_all_reduce) {
  run_threads(2, [&](Group g) {
    for (at::ScalarType type : {at::kFloat, at::kHalf}) {
      GradBucket plain = bucket_of(g, type, type), named = bucket_of(g, type, type),
                 own = bucket_of(g, type, type);
      g.all_reduce(plain.buffer).wait();
      named_comm_hook("none")(g, named, ReduceOp::sum).wait();
      cast_hook(type)(g, own, ReduceOp::sum).wait();
      expect(plain.buffer.equal(named.buffer) && plain.buffer.equal(own.buffer), "same bits");
    }
  });
}

TEST(grad_cast_hook, takes_its_memory_once) {
  run_threads(2, [&](Group g) {
    std::vector<int64_t> sizes = {2000, 30000, 70000};
    NamedTensors parameters;
    for (int64_t n : sizes)
      parameters.emplace_back("p" + std::to_string(n), at::zeros({n}).requires_grad_());
    Reducer reducer(parameters, g, {{1, 1}, ReduceOp::sum, cast_hook(at::kBFloat16)});
    int64_t shared = 0;
    for (int step = 0; step < 4; ++step) {
      reducer.open();
      for (size_t i = sizes.size(); i-- > 0;) {
        parameters[i].second.mutable_grad() = at::full({sizes[i]}, 1.5 + g.rank());
        reducer.ready(i);
      }
      reducer.close();
      for (const auto& [name, p] : parameters)
        expect(p.grad().eq(4).all().item<bool>(), "1.5 + 2.5 in " + name);
      if (step == 1) shared = g.shared_bytes();
      if (step > 1) expect(g.shared_bytes() == shared, "memory grows");
    }
  });
}

TEST(grad_cast_hook, ranks_end_with_the_same_bits) {
  std::vector<at::Tensor> ends(4);
  run_threads(4, [&](Group g) {
    GradBucket bucket = bucket_of(g, at::kFloat, at::kFloat);
    cast_hook(at::kHalf)(g, bucket, ReduceOp::sum).wait();
    ends[static_cast<size_t>(g.rank())] = bucket.buffer.clone();
  });
  for (const auto& end : ends) EXPECT_TRUE(end.equal(ends[0]));
}

TEST(grad_cast_hook, refuses_other_names_and_dtypes) {
  EXPECT_THROW(named_comm_hook("fp8"), UsageError);
  EXPECT_THROW(cast_hook(at::kInt), UsageError);
}

}  // namespace cast_hook_test
