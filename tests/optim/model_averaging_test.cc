// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/averaging/model_averaging.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "tests/grad/small_net.h"
#include "tests/optim/state_visitors.h"
#include "tests/support/refusals.h"
#include "trireme/comm/start/run.h"

namespace trireme::testing::model_averaging_test {
namespace {

NamedTensors weights(double value, at::ScalarType type = at::kDouble) {
  return {{"w", at::full({3, 5}, value, type).requires_grad_()},
          {"b", at::full({7}, value + 1, type).requires_grad_()}};
}

/// A step of this rank's own.
void move(NamedTensors& p, double by) {
  at::NoGradGuard no_grad;
  for (auto& [name, t] : p) t.detach().add_(by);
}

double value_of(const NamedTensors& p) { return p[0].second.detach().view({-1})[0].item<double>(); }

TEST(optim_model_averaging, ranks_go_apart_and_become_their_mean_every_period) {
  for (int n : {1, 2, 3, 4})
    run_threads(n, [&](Group g) {
      NamedTensors p = weights(0);
      at::Tensor seen = at::full({2}, static_cast<double>(g.rank())),
                 count = at::ones({1}, at::kLong);
      auto averager = average_periodically(p, g, {.period = 3}, {{"seen", seen}, {"count", count}});
      for (int s = 1; s <= 9; ++s) {
        expect(averager->steps_locally(), "local SGD steps locally from its first step on");
        move(p, g.rank() + 1);
        averager->step();
        const double mean = (n + 1) / 2.0;
        const double want = s % 3 == 0 ? mean * s : mean * (s / 3 * 3) + (g.rank() + 1) * (s % 3);
        expect(std::abs(value_of(p) - want) < 1e-12,
               fmt::format("{} after step {}", value_of(p), s));
        expect(averager->in_sync() == (n == 1 || s % 3 == 0), "in sync");
      }
      expect(seen[1].item<double>() == (n - 1) / 2.0, "floating buffers are averaged");
      expect(count.item<int64_t>() == 1, "others are left alone");
    });
}

TEST(optim_model_averaging, diloco_refuses_weights_that_were_exchanged_since_it_began) {
  for (int only : {-1, 1}) {
    const auto said = what_ranks_throw(2, [&](Group g) {
      NamedTensors p = weights(0);
      auto averager = diloco(p, g, {.period = 2, .start_step = 1});
      const auto exchange = [&] { p[0].second.set_data(at::full({3, 5}, 9.0, at::kDouble)); };
      exchange();  // ranks do not step apart yet: it will begin with these
      averager->step();
      averager->step();
      averager->step();
      if (only < 0 || g.rank() == only) exchange();
      averager->step();
      averager->step();
    });
    for (const auto& text : said)
      EXPECT_NE(text.find("DiLoCo: parameter 'w' was exchanged (torch::load()"), std::string::npos)
          << text;
  }
}

TEST(optim_model_averaging, until_start_step_nothing_happens_and_gradients_are_of_all) {
  run_threads(2, [](Group g) {
    NamedTensors p = weights(0);
    auto averager = average_periodically(p, g, {.period = 2, .start_step = 3});
    std::vector<bool> apart;
    for (int s = 0; s < 7; ++s) {
      apart.push_back(averager->steps_locally());
      move(p, averager->steps_locally() ? g.rank() : 1);
      averager->step();
    }
    expect(apart == std::vector<bool>({false, false, false, true, true, true, true}), "apart");
    expect(value_of(p) == 3 + 4 * 0.5, "two periods after the third step");
  });
}

TEST(optim_model_averaging, levels_average_neighbours_often_and_all_seldom) {
  run_threads(4, [](Group g) {
    NamedTensors p = weights(0);
    auto averager = average_hierarchically(p, g, {{2, 1}, {4, 3}});
    for (int s = 1; s <= 6; ++s) {
      move(p, g.rank());
      averager->step();
      const double pair = g.rank() < 2 ? 0.5 : 2.5;
      const double want = s % 3 == 0 ? 1.5 * s : 1.5 * (s / 3 * 3) + pair * (s % 3);
      expect(std::abs(value_of(p) - want) < 1e-12, fmt::format("{} after step {}", value_of(p), s));
      expect(averager->in_sync() == (s % 3 == 0), "in sync");
    }
  });
}

// Nesterov of torch::optim::SGD on the same pseudo-gradients.
TEST(optim_model_averaging, diloco_s_outer_step_is_torch_s_sgd_on_the_mean_way) {
  for (bool nesterov : {true, false})
    run_threads(2, [&](Group g) {
      NamedTensors p = weights(1);
      at::Tensor twin = at::full({1}, 1.0, at::kDouble).requires_grad_();
      torch::optim::SGD outer({twin},
                              torch::optim::SGDOptions(0.7).momentum(0.9).nesterov(nesterov));
      auto averager = diloco(p, g, {.period = 2, .outer_momentum = 0.9, .nesterov = nesterov});
      for (int s = 1; s <= 8; ++s) {
        move(p, -0.01 * s * (g.rank() + 1));
        averager->step();
        if (s % 2) continue;
        twin.mutable_grad() = at::full({1}, 0.01 * (2 * s - 1) * 1.5, at::kDouble);
        outer.step();
        expect(std::abs(value_of(p) - twin.item<double>()) < 1e-12, "the outer step");
        expect(averager->in_sync(), "all go on from it");
      }
    });
}

TEST(optim_model_averaging, diloco_takes_another_mean_and_begins_where_ranks_part) {
  run_threads(2, [](Group g) {
    NamedTensors p = weights(0);
    int asked = 0;
    auto averager = diloco(p, g,
                           {.period = 1,
                            .start_step = 2,
                            .outer_lr = 1,
                            .outer_momentum = 0,
                            .mean = [&](const at::Tensor& flat) {
                              ++asked;
                              expect(flat.dim() == 1 && flat.numel() == 22, "one flat tensor");
                              flat.fill_(-0.25);
                            }});
    move(p, 4), averager->step();
    move(p, 4), averager->step();
    expect(asked == 0 && value_of(p) == 8, "as one, to begin with");
    move(p, 1), averager->step();
    expect(asked == 1 && value_of(p) == 8.25, "from 8, by the mean that was given");
  });
}

TEST(optim_model_averaging, state_in_the_middle_goes_on_with_the_same_bits) {
  run_threads(2, [](Group g) {
    auto train = [&](ModelAverager& a, NamedTensors& p, int from, int to) {
      for (int s = from; s < to; ++s) move(p, std::sin(s) * (g.rank() + 1)), a.step();
    };
    NamedTensors whole = weights(0.3), half = weights(0.3), other = weights(0.3);
    auto a = diloco(whole, g, {.period = 3});
    train(*a, whole, 0, 10);
    auto b = diloco(half, g, {.period = 3});
    train(*b, half, 0, 5);
    Collect saved;
    b->state(saved);
    auto c = diloco(other, g, {.period = 3});
    Restore restore(saved);
    c->state(restore);
    for (size_t i = 0; i < half.size(); ++i) other[i].second.detach().copy_(half[i].second);
    train(*c, other, 5, 10);
    expect(c->steps() == 10, "steps are state");
    for (size_t i = 0; i < whole.size(); ++i)
      expect(at::equal(whole[i].second, other[i].second), whole[i].first);
  });
}

TEST(optim_model_averaging, weights_that_are_not_finite_are_named_on_every_rank) {
  for (bool outer : {false, true}) {
    const auto said = what_ranks_throw(3, [&](Group g) {
      NamedTensors p = weights(0);
      auto a = outer ? diloco(p, g, {.period = 1}) : average_periodically(p, g, {.period = 1});
      if (g.rank() == 1) p[1].second.detach()[3] = NAN;
      a->step();
    });
    for (const std::string& s : said) {
      EXPECT_TRUE(has(s, "NumericError")) << s;
      EXPECT_TRUE(has(s, "'b' of rank 1")) << s;
    }
  }
}

TEST(optim_model_averaging, a_rank_that_leaves_before_the_average_is_an_error_for_the_others) {
  const auto said = what_ranks_throw(3, [](Group g) {
    NamedTensors p = weights(0);
    auto a = average_periodically(p, g, {.period = 2});
    a->step();
    if (g.rank() == 2) return;
    a->step();
  });
  EXPECT_EQ(said[2], "");
  for (int r : {0, 1})
    EXPECT_TRUE(has(said[static_cast<size_t>(r)], "rank 2 left")) << said[static_cast<size_t>(r)];
}

TEST(optim_model_averaging, what_cannot_be_averaged_is_refused) {
  run_threads(2, [](Group g) {
    auto says = [&](const std::string& part, const std::function<void()>& f) {
      const std::string said = refusal(f);
      expect(has(said, part), "'" + said + "' and not '" + part + "'");
    };
    says("'w' is BFloat16", [&] { average_periodically(weights(0, at::kBFloat16), g); });
    says("no parameters", [&] { average_periodically({}, g); });
    says("a period of 0", [&] { average_periodically(weights(0), g, {.period = 0}); });
    says("start_step is -1",
         [&] { average_periodically(weights(0), g, {.period = 1, .start_step = -1}); });
    says("the last level must have all of them", [&] {
      average_hierarchically(weights(0), g, {{4, 2}});
    });
    says("outer_lr 0", [&] { diloco(weights(0), g, {.outer_lr = 0}); });
    says("outer_momentum 1", [&] { diloco(weights(0), g, {.outer_momentum = 1}); });
  });
}

}  // namespace
}  // namespace trireme::testing::model_averaging_test
