// SPDX-License-Identifier: Apache-2.0
// Clipping before gradients are encoded: each rank its own.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/grad/tied_net.h"
#include "tests/support/refusals.h"
#include "tests/train/small_runs.h"
#include "trireme/grad/reducer.h"
#include "trireme/train/gradients/gradients.h"

namespace own_clip_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr double kOwnLimit = 0.02;  // smaller than any mean gradient of clipped_loss / √4

/// A sum over `rows` samples, another one on each rank.
at::Tensor clipped_loss(TiedNet& net, int rank, int64_t rows, int micro = 0) {
  return net->forward(tokens(rows, 2 * rank + micro)).pow(2).sum() * (1 + rank);
}

NamedTensors named_list_of(TiedNet& net) {
  NamedTensors list;
  int i = 0;
  for (const at::Tensor& p : each_once(*net)) list.emplace_back("p" + std::to_string(i++), p);
  return list;
}

/// Rank r's own gradient of two micro-batches, brought to a mean of norm kOwnLimit · √ranks at most
/// by torch; a sum again.
std::vector<at::Tensor> clipped_by_torch(int r, int ranks, int64_t rows, double max_norm) {
  TiedNet net = tied_net();
  for (int micro : {0, 1}) clipped_loss(net, r, rows, micro).backward();
  const auto parameters = each_once(*net);
  const auto weight = static_cast<double>(2 * rows);
  for (auto p : parameters) p.mutable_grad().div_(weight);
  torch::nn::utils::clip_grad_norm_(parameters, max_norm * std::sqrt(ranks));
  std::vector<at::Tensor> sums;
  for (const auto& p : parameters) sums.push_back(p.grad() * weight);
  return sums;
}

/// One step of such a rank through Gradients, whose losses are scaled by `scale`.
void own_step(Gradients& gradients, TiedNet& net, int rank, int64_t rows, double scale,
              double max_norm) {
  gradients.open(2);
  LossSum own;
  for (int micro : {0, 1}) {
    gradients.begin_backward(0, micro);
    const at::Tensor loss = clipped_loss(net, rank, rows, micro);
    own.sum += loss.item<double>();
    own.weight += rows;
    gradients.tell(own, 0);
    (loss * scale).backward();
  }
  expect(!gradients.reducer().any_launched(), "a bucket was launched before its rank was clipped");
  gradients.clip_own(max_norm, 1 / scale);
  gradients.close();
}

}  // namespace

TEST(train_own_clip, sums_equal_the_serial_simulation_whatever_the_shares_and_the_loss_scale) {
  for (int n : {1, 2, 4})
    for (bool equal : {true, false})
      for (double max_norm : {kOwnLimit, 1e6})
        run_threads(n, [=](Group g) {
          const auto rows_of_rank = [equal](int r) { return equal ? 3 : 2 + 2 * r; };
          std::vector<at::Tensor> want;
          for (int r = 0; r < n; ++r) {
            const auto one = clipped_by_torch(r, n, rows_of_rank(r), max_norm);
            for (size_t i = 0; i < one.size(); ++i)
              r == 0 ? want.push_back(one[i]) : void(want[i] = want[i] + one[i]);
          }
          TiedNet net = tied_net();
          auto gradients =
              whole_gradients(named_list_of(net), {}, g, {.bucket_bytes = 64, .clips_own = true});
          for (double scale : {1.0, 4096.0, 1.0}) {
            own_step(*gradients, net, g.rank(), rows_of_rank(g.rank()), scale, max_norm);
            size_t i = 0;
            for (const at::Tensor& p : each_once(*net))
              expect(torch::allclose(p.grad() / scale, want[i++], 1e-9, 1e-13),
                     "not the sum of what the ranks clipped");
          }
        });
}

TEST(train_own_clip, a_gradient_that_is_not_finite_is_left_for_all_to_see) {
  for (double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    run_threads(2, [bad](Group g) {
      TiedNet net = tied_net();
      auto gradients = whole_gradients(named_list_of(net), {}, g, {.clips_own = true});
      each_once(*net)[1].register_hook([&](at::Tensor t) { return g.rank() == 1 ? t * bad : t; });
      own_step(*gradients, net, g.rank(), 3, 1, kOwnLimit);
      const auto found = gradients->not_finite();
      expect(found.rank == 1 && found.parameter == "p1", found.parameter);
      expect(at::isfinite(each_once(*net)[2].grad()).all().item<bool>(), "the others are, too");
    });
}

TEST(train_own_clip, a_rank_without_samples_gives_zeros) {
  run_threads(2, [](Group g) {
    TiedNet net = tied_net();
    auto gradients = whole_gradients(named_list_of(net), {}, g, {.clips_own = true});
    gradients->open(1);
    at::Tensor loss = clipped_loss(net, 0, 3);
    if (g.rank() == 1) loss = loss * 0;
    gradients->tell({loss.item<double>(), g.rank() == 1 ? 0 : 3}, 0);
    loss.backward();
    gradients->clip_own(kOwnLimit, 1);
    gradients->close();
    double squares = 0;
    for (const at::Tensor& p : each_once(*net)) squares += p.grad().pow(2).sum().item<double>();
    expect(std::abs(std::sqrt(squares) / 3 - kOwnLimit * std::sqrt(2)) < 1e-6,
           std::to_string(std::sqrt(squares) / 3));
  });
}

TEST(train_own_clip, gradients_that_leave_during_backward_refuse_it) {
  run_threads(1, [](Group g) {
    TiedNet net = tied_net();
    auto gradients = whole_gradients(named_list_of(net), {}, g);
    gradients->open(1);
    EXPECT_TRUE(has(refusal([&] { gradients->clip_own(1, 1); }), "clips_own"));
    clipped_loss(net, 0, 3).backward();
    gradients->close();
    TiedNet leaves = tied_net();
    EXPECT_TRUE(has(refusal([&] {
                      whole_gradients(named_list_of(leaves), {}, g,
                                      {.reproducible = true, .clips_own = true});
                    }),
                    "tree"));
  });
}

namespace {

NamedTensors weights_of_four_steps(const Sets& more, int n = 2) {
  Sets sets{"optimizer.params.momentum=0", "optimizer.params.lr=0.5"};
  sets.insert(sets.end(), more.begin(), more.end());
  return train_on_threads(n, digits("mlp", sets), 4)[0].weights;
}

}  // namespace

// Until then gradients travel as they are, and with one rank always.
TEST(train_own_clip, what_travels_as_it_is_is_clipped_as_it_always_was) {
  const Sets plain{"gradient_clipping=0.2"},
      later{"gradient_clipping=0.2", "compression.type=topk", "compression.start_step=4"},
      at_once{"gradient_clipping=0.2", "compression.type=topk", "compression.start_step=0"};
  EXPECT_EQ(first_difference(weights_of_four_steps(later), weights_of_four_steps(plain)), "");
  EXPECT_NE(first_difference(weights_of_four_steps(at_once), weights_of_four_steps(plain)), "");
  EXPECT_EQ(first_difference(weights_of_four_steps(at_once, 1), weights_of_four_steps(plain, 1)),
            "");
}

TEST(train_own_clip, a_limit_that_no_gradient_reaches_changes_no_bit) {
  for (const char* type : {"int8", "topk", "sign", "powersgd"}) {
    const std::string codec = std::string("compression.type=") + type;
    const Sets none{codec, "gradient_clipping=0"}, far{codec, "gradient_clipping=1e6"};
    EXPECT_EQ(first_difference(weights_of_four_steps(far), weights_of_four_steps(none)), "")
        << type;
  }
}

TEST(train_own_clip, auto_is_the_mean_under_sign_and_else_each_rank_s_own) {
  for (const char* type : {"int8", "topk", "sign", "powersgd"}) {
    const auto clipping = [&](const char* what) {
      return weights_of_four_steps({std::string("compression.type=") + type,
                                    "compression.start_step=0", "gradient_clipping=0.1", what});
    };
    const NamedTensors chosen = clipping("compression.clip=auto");
    const bool mean = type == std::string("sign");
    EXPECT_EQ(first_difference(chosen, clipping("compression.clip=mean")) == "", mean) << type;
    EXPECT_EQ(first_difference(chosen, clipping("compression.clip=own")) == "", !mean) << type;
  }
}

// int8 keeps next to nothing back, so a step is as long as the limit allows.
TEST(train_own_clip, accumulation_and_a_loss_scale_are_clipped_in_their_own_units) {
  const auto after = [](const Sets& more) {
    Sets sets{"compression.type=int8", "compression.start_step=0", "gradient_clipping=0.1"};
    sets.insert(sets.end(), more.begin(), more.end());
    return weights_of_four_steps(sets);
  };
  const auto half = [&](const char* scale) {
    return after({"fp16.enabled=true", "fp16.emulate=true", scale});
  };
  const NamedTensors whole = after({});
  EXPECT_LT(relative_distance(after({"gradient_accumulation_steps=4"}), whole), 5e-3);
  EXPECT_GT(relative_distance(after({"gradient_clipping=0.2"}), whole), 4e-2) << "it bites";
  EXPECT_LT(relative_distance(half("fp16.loss_scale=1024"), half("fp16.loss_scale=16")), 1e-2);
}

}  // namespace own_clip_test
