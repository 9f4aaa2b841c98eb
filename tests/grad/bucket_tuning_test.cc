// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/tuning/bucket_tuning.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/grad/small_net.h"
#include "tests/optim/state_visitors.h"
#include "tests/support/refusals.h"
#include "trireme/grad/reducer.h"

namespace trireme::testing::bucket_tuning_test {
namespace {

NamedTensors parameters_of(Small& net) {
  NamedTensors list;
  for (const auto& item : net->named_parameters()) list.emplace_back(item.key(), item.value());
  return list;
}

void round_of(Reducer& reducer, int step, int rank) {
  reducer.open();
  for (size_t i = reducer.size(); i-- > 0;) {
    const at::Tensor& p = reducer.parameter(i);
    at::Tensor g =
        (at::arange(p.numel(), at::kDouble) * 0.3 + step + rank).sin().reshape(p.sizes());
    p.mutable_grad() = g;
    reducer.ready(i);
  }
  reducer.close();
}

TEST(grad_bucket_tuning, scatter_gather_has_the_bits_of_all_reduce) {
  for (int n : {1, 2, 3, 4, 5})
    run_threads(n, [&](Group g) {
      for (int64_t numel : {1, 2, 3, 7, 1000}) {
        const at::Tensor values = (at::arange(numel, at::kFloat) * 0.7f + g.rank()).sin();
        at::Tensor a = g.empty({numel}, at::kFloat), b = g.empty({numel}, at::kFloat);
        a.copy_(values), b.copy_(values);
        g.all_reduce(a, ReduceOp::avg).wait();
        GradBucket bucket{0, true, b, nullptr};
        scatter_gather_hook()(g, bucket, ReduceOp::avg).wait();
        expect(at::equal(a, b), fmt::format("{} elements", numel));
      }
    });
}

TEST(grad_bucket_tuning, ranks_come_to_the_same_buckets_and_gradients_keep_their_bits) {
  run_threads(3, [](Group g) {
    Small net = make(1), plain_net = make(1);
    const BucketSetting start{256};
    auto tuning = std::make_shared<BucketTuning>(
        start,
        BucketTuner(start, {128, 1024, 4096}, {.block = 1, .pairs = 1, .gain = -10, .budget = 10}),
        64);
    Reducer plain(parameters_of(plain_net), g, {{64, 256}, ReduceOp::avg});
    Reducer reducer(parameters_of(net), g, {{64, 256}, ReduceOp::avg, tuning->hook()});
    tuning->attach(reducer.record());
    std::vector<std::vector<std::vector<int>>> seen;
    for (int step = 0; step < 60; ++step) {
      round_of(plain, step, g.rank());
      round_of(reducer, step, g.rank());
      tuning->closed(reducer);
      if (seen.empty() || seen.back() != reducer.buckets()) seen.push_back(reducer.buckets());
      for (size_t i = 0; i < reducer.size(); ++i)
        expect(at::equal(net->parameters()[i].grad(), plain_net->parameters()[i].grad()),
               fmt::format("parameter {} in step {}", i, step));
    }
    expect(tuning->tuner()->done(), "all tried");
    expect(seen.size() >= 4, "buckets were laid out anew");
    expect(tuning->setting() == tuning->tuner()->best(), "the best stays");
    at::Tensor mine = at::tensor({tuning->setting().bytes}), all = at::empty({3}, at::kLong);
    g.all_gather_into_tensor(all, mine).wait();
    expect((all == mine).all().item<bool>(), "one setting on all ranks");
  });
}

TEST(grad_bucket_tuning, a_given_setting_stays) {
  run_threads(2, [](Group g) {
    Small net = make(1);
    BucketTuning tuning({128, BucketOrder::registration, BucketAlgorithm::scatter_gather},
                        std::nullopt, 128);
    Reducer reducer(parameters_of(net), g, {{64, 4096}, ReduceOp::avg, tuning.hook()});
    tuning.attach(reducer.record());
    round_of(reducer, 0, g.rank());
    const auto before = reducer.buckets();
    tuning.closed(reducer);
    expect(reducer.buckets().size() > before.size(), "smaller buckets");
    expect(reducer.buckets()[0][0] == static_cast<int>(reducer.size()) - 1, "the last one first");
    round_of(reducer, 1, g.rank());
    expect(refusal([&] {
             reducer.open(), reducer.lay_out({1, 1}, BucketOrder::arrival);
           }) != "",
           "not during a round");
    for (size_t i = 0; i < reducer.size(); ++i) reducer.ready(i);
    reducer.close();
  });
}

TEST(grad_bucket_tuning, a_reducer_s_order_is_state_and_the_next_rounds_buckets) {
  run_threads(2, [](Group g) {
    Small a = make(1), b = make(1);
    Reducer first(parameters_of(a), g, {{64, 256}, ReduceOp::avg});
    // Registered and arrived the same way round: the order of arrival is the other one.
    first.open();
    for (size_t i = 0; i < first.size(); ++i) {
      first.parameter(i).mutable_grad() = at::ones_like(first.parameter(i));
      first.ready(i);
    }
    first.close();
    Collect saved;
    first.state(saved);
    Reducer second(parameters_of(b), g, {{64, 256}, ReduceOp::avg});
    expect(second.buckets() != first.buckets(), "another order to begin with");
    Restore restore(saved);
    second.state(restore);
    expect(second.buckets() == first.buckets(), "the loaded one");
    round_of(second, 0, g.rank());

    saved.tensors["reducer.order"][0] = saved.tensors["reducer.order"][1];
    Reducer third(parameters_of(b), g, {{64, 256}, ReduceOp::avg});
    std::string said;
    try {
      third.state(restore);
    } catch (const Corrupt& e) {
      said = e.what();
    }
    expect(has(said, "reducer.order is not a permutation"), said);
  });
}

}  // namespace
}  // namespace trireme::testing::bucket_tuning_test
