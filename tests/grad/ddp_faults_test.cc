// SPDX-License-Identifier: Apache-2.0
// What goes wrong on one rank is told on all of them, in that step.
#include <gtest/gtest.h>

#include <limits>

#include "tests/grad/small_net.h"
#include "trireme/grad/ddp.h"
#include "trireme/grad/reducer.h"

namespace ddp_faults_test {

using namespace trireme;
using namespace trireme::testing;

TEST(grad_ddp_faults, a_hook_that_throws_on_one_rank_is_told_on_all_with_its_words) {
  const auto said = what_ranks_throw(3, [](Group g) {
    Small net = make(1);
    CommHook hook = [rank = g.rank()](Group& group, GradBucket& b, ReduceOp op) {
      if (rank == 1 && b.index == 1) throw std::runtime_error("no more codebooks");
      return group.all_reduce(b.buffer, op);
    };
    DistributedDataParallel ddp(net, g, {.bucket_bytes = 1, .first_bucket_bytes = 1, .hook = hook});
    net->forward(input(4)).sum().backward();
  });
  EXPECT_EQ(said[1], "std: no more codebooks");
  for (size_t r : {0, 2}) {
    EXPECT_EQ(said[r].rfind("PeerLost: ", 0), 0u) << said[r];
    EXPECT_NE(said[r].find("the communication hook of rank 1 failed for bucket 1: no more "
                           "codebooks"),
              std::string::npos)
        << said[r];
  }
}

TEST(grad_ddp_faults, a_hook_that_changes_the_shape_on_one_rank_is_told_on_all) {
  for (bool resize : {false, true}) {
    const auto said = what_ranks_throw(2, [resize](Group g) {
      Small net = make(1);
      CommHook hook = [resize, rank = g.rank()](Group& group, GradBucket& b, ReduceOp op) {
        Work work = group.all_reduce(b.buffer, op);
        if (rank == 0 && resize) b.buffer.resize_({3});
        if (rank == 0 && !resize) b.buffer = b.buffer.narrow(0, 0, 3).clone();
        return work;
      };
      DistributedDataParallel ddp(net, g, {.hook = hook});
      net->forward(input(4)).sum().backward();
    });
    const std::string what =
        "the communication hook replaced the tensor of bucket 0 or changed its shape";
    EXPECT_EQ(said[0].rfind("UsageError: " + what, 0), 0u) << said[0];
    EXPECT_EQ(said[1].rfind("PeerLost: ", 0), 0u) << said[1];
    EXPECT_NE(said[1].find(what), std::string::npos) << said[1];
  }
}

TEST(grad_ddp_faults, a_nan_on_one_rank_is_named_on_all_before_it_is_everybodys) {
  for (double bad :
       {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    const auto said = what_ranks_throw(3, [bad](Group g) {
      Small net = make(1);
      DistributedDataParallel ddp(net, g, {.check_finite = true});
      net->forward(input(4)).sum().backward();
      net->zero_grad();
      net->b->bias.register_hook([&, bad](at::Tensor t) {
        if (g.rank() == 2) t[3] = bad;
        return t;
      });
      net->forward(input(4)).sum().backward();
    });
    for (const auto& text : said)
      EXPECT_EQ(text, "NumericError: the gradient of 'b.bias' on rank 2 is not finite in round 2");
  }
}

TEST(grad_ddp_faults, a_loss_that_does_not_depend_on_the_model_shows_in_the_forward_count) {
  const auto said = what_ranks_throw(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      at::Tensor out = ddp.forward(net, input(4));
      if (g.rank() == 1 && step == 1) out = torch::ones({1}).requires_grad_(true);
      out.sum().backward();
    }
  });
  for (const auto& text : said)
    EXPECT_NE(text.find("Mismatch: in round 2 of gradients rank 0 has run 2 forwards and rank 1 3"),
              std::string::npos)
        << text;
}

TEST(grad_ddp_faults, forwards_without_gradients_are_not_counted) {
  run_threads(2, [](Group g) {
    Small net = make(1);
    DistributedDataParallel ddp(net, g);
    if (g.rank() == 1) {
      at::NoGradGuard evaluate;
      ddp.forward(net, input(4));
    }
    ddp.forward(net, input(4)).sum().backward();
    expect(net->a->weight.grad().defined(), "no gradient");
  });
}

TEST(grad_ddp_faults, models_that_differ_in_order_or_count_or_dtype_are_told_on_all) {
  struct Case {
    const char* what;
    const char* text;
    std::function<NamedTensors(int)> list;
  };
  auto t = [](std::vector<int64_t> shape, at::ScalarType dtype = at::kFloat) {
    return torch::ones(shape, dtype).requires_grad_(true);
  };
  const std::vector<Case> cases = {
      {"order", "rank 0 has a Float [2], rank 1 has b Float [2]",
       [&](int r) {
         return r ? NamedTensors{{"b", t({2})}, {"a", t({2})}}
                  : NamedTensors{{"a", t({2})}, {"b", t({2})}};
       }},
      {"count", "rank 0 has none, rank 1 has b Float [2]",
       [&](int r) {
         return r ? NamedTensors{{"a", t({2})}, {"b", t({2})}} : NamedTensors{{"a", t({2})}};
       }},
      {"dtype", "rank 0 has a Float [2], rank 1 has a Double [2]",
       [&](int r) {
         return NamedTensors{{"a", t({2}, r ? at::kDouble : at::kFloat)}};
       }},
      {"name", "rank 0 has a Float [2], rank 1 has c Float [2]",
       [&](int r) {
         return NamedTensors{{r ? "c" : "a", t({2})}};
       }},
  };
  for (const auto& c : cases) {
    const auto said =
        what_ranks_throw(2, [&](Group g) { DistributedDataParallel ddp(c.list(g.rank()), {}, g); });
    for (const auto& text : said) {
      EXPECT_EQ(text.rfind("Mismatch: parameter ", 0), 0u) << c.what << ": " << text;
      EXPECT_NE(text.find(c.text), std::string::npos) << c.what << ": " << text;
    }
  }
}

}  // namespace ddp_faults_test
