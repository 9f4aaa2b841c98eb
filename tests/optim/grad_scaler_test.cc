// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/grad_scaler.h"

#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <limits>
#include <map>

#include "trireme/comm/start/run.h"

namespace grad_scaler_test {

using namespace trireme;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

void expect(bool ok, const std::string& what) { trireme::check<Error>(ok, "{}", what); }

NamedTensors parameters(std::vector<std::string> names, at::ScalarType dtype = at::kFloat) {
  NamedTensors all;
  for (auto& name : names) {
    auto p = torch::ones({3}, dtype).requires_grad_();
    p.mutable_grad() = torch::full({3}, 8, dtype);
    all.emplace_back(name, p);
  }
  return all;
}

struct Values : StateVisitor {
  using StateVisitor::tensor;
  bool load = false;
  std::map<std::string, double> kept;
  void tensor(const Slice&, at::Tensor) override {}
  template <class T>
  void move(const std::string& name, T& v) {
    if (load)
      v = static_cast<T>(kept.at(name));
    else
      kept[name] = static_cast<double>(v);
  }
  void value(const std::string& name, int64_t& v) override { move(name, v); }
  void value(const std::string& name, double& v) override { move(name, v); }
  void value(const std::string&, std::string&) override {}
};

}  // namespace

TEST(optim_grad_scaler, one_rank_overflows_and_all_take_the_same_decision) {
  for (int n : {1, 2, 3, 4})
    for (int bad = 0; bad < n; ++bad)
      run_threads(n, [bad](Group g) {
        GradScaler scaler(deepspeed_loss_scale(0, 10, 4, 1), g);
        auto all = parameters({"a", "b", "c"});
        expect(scaler.check(all).finite, "all finite");
        if (g.rank() == bad) all[1].second.mutable_grad()[2] = kInf;
        auto verdict = scaler.check(all);
        expect(!verdict.finite && verdict.rank == bad && verdict.parameter == "b",
               "rank " + std::to_string(verdict.rank) + " '" + verdict.parameter + "'");
        expect(scaler.update(verdict) == LossScaleMove::backed_off, "backed off");
        expect(scaler.scale() == 512, "scale");
      });
}

TEST(optim_grad_scaler, the_lowest_rank_is_named_where_names_differ_by_rank) {
  run_threads(3, [](Group g) {
    GradScaler scaler({}, g);
    auto all = parameters({"stage" + std::to_string(g.rank()) + ".weight"});
    if (g.rank() > 0) all[0].second.mutable_grad()[0] = std::nanf("");
    auto verdict = scaler.check(all);
    expect(verdict.rank == 1 && verdict.parameter == "stage1.weight", verdict.parameter);
    verdict = scaler.decide(g.rank() == 2 ? std::string(1000, 'x') : "");
    expect(verdict.rank == 2 && verdict.parameter == std::string(255, 'x'), verdict.parameter);
  });
}

TEST(optim_grad_scaler, at_the_floor_every_rank_stops_with_the_same_words) {
  std::vector<std::string> words(3);
  run_threads(3, [&](Group g) {
    GradScaler scaler(deepspeed_loss_scale(0, 1, 4, 2), g);
    auto all = parameters({"head.weight", "head.bias"});
    std::vector<double> scales;
    try {
      for (int step = 0; step < 10; ++step) {
        if (g.rank() == 2) all[1].second.mutable_grad()[1] = -kInf;
        scaler.update(scaler.check(all));
        scales.push_back(scaler.scale());
      }
    } catch (const NumericError& e) {
      words[static_cast<size_t>(g.rank())] = e.what();
      expect(e.rank() == 2 && e.seq() == 3, "context");
    }
    expect(scales == std::vector<double>{2, 1}, "scales");
    expect(scaler.scale() == 1 && scaler.steps() == 2, "as before");
  });
  EXPECT_NE(words[0].find("'head.bias' is not finite on rank 2 in step 3"), std::string::npos)
      << words[0];
  EXPECT_NE(words[0].find("min_loss_scale"), std::string::npos);
  EXPECT_EQ(words[0], words[1]);
  EXPECT_EQ(words[0], words[2]);
}

TEST(optim_grad_scaler, the_scale_goes_up_into_the_gradients_and_down_again_exactly) {
  GradScaler scaler(deepspeed_loss_scale(0, 12));
  auto w = torch::tensor({0.3f, -1.7f, 2.9f}).requires_grad_();
  auto loss = (w * w * w).sum();
  auto plain = torch::autograd::grad({loss}, {w}, {}, true)[0];
  scaler.scale(loss).backward();
  EXPECT_TRUE(w.grad().equal(plain * 4096));
  EXPECT_TRUE(scaler.unscale_({{"w", w}}).finite);
  EXPECT_TRUE(w.grad().equal(plain));
  EXPECT_EQ(scaler.inverse() * scaler.scale(), 1);
  auto half = torch::ones({}, at::kHalf) * 100;
  EXPECT_EQ(scaler.scale(half).scalar_type(), at::kFloat);
  EXPECT_EQ(scaler.scale(half).item<float>(), 409600);
}

TEST(optim_grad_scaler, gradients_that_are_not_finite_are_left_alone) {
  GradScaler scaler;
  auto all = parameters({"a", "b"});
  all[0].second.mutable_grad()[0] = kInf;
  auto verdict = scaler.unscale_(all);
  EXPECT_FALSE(verdict.finite);
  EXPECT_EQ(verdict.parameter, "a");
  EXPECT_EQ(all[1].second.grad()[0].item<float>(), 8);
}

TEST(optim_grad_scaler, looks_at_half_sparse_and_missing_gradients) {
  GradScaler scaler(deepspeed_loss_scale(0, 3));
  for (auto dtype : {at::kHalf, at::kBFloat16, at::kDouble}) {
    auto all = parameters({"a", "b"}, dtype);
    all[0].second.mutable_grad() = at::Tensor();
    EXPECT_TRUE(scaler.unscale_(all).finite);
    EXPECT_EQ(all[1].second.grad()[1].to(at::kFloat).item<float>(), 1);
    all[1].second.mutable_grad()[1] = kInf;
    EXPECT_EQ(scaler.check(all).parameter, "b");
  }
  auto all = parameters({"dense", "rows"});
  auto index = torch::tensor({{0, 2}}, at::kLong);
  auto values = torch::tensor({8.0f, 16.0f});
  all[1].second.mutable_grad() = torch::sparse_coo_tensor(index, values, {3});
  EXPECT_TRUE(scaler.unscale_(all).finite);
  EXPECT_TRUE(all[1].second.grad().to_dense().equal(torch::tensor({1.0f, 0.0f, 2.0f})));
  EXPECT_EQ(all[0].second.grad()[0].item<float>(), 1);
  all[1].second.mutable_grad() = torch::sparse_coo_tensor(index, values / 0, {3});
  EXPECT_EQ(scaler.check(all).parameter, "rows");
}

TEST(optim_grad_scaler, goes_on_from_its_state) {
  const auto options = deepspeed_loss_scale(0, 8, 3, 2);
  GradScaler whole(options), first(options), second(options);
  const std::string steps = ".x..x...x.....xx.";
  auto verdict = [&](size_t i) {
    GradVerdict v;
    v.finite = steps[i] == '.';
    return v;
  };
  for (size_t i = 0; i < 9; ++i) first.update(verdict(i));
  Values values;
  first.state(values);
  values.load = true;
  second.state(values);
  for (size_t i = 0; i < steps.size(); ++i) {
    whole.update(verdict(i));
    if (i < 9) continue;
    second.update(verdict(i));
    EXPECT_EQ(second.scale(), whole.scale()) << i;
    EXPECT_EQ(second.state().good_steps, whole.state().good_steps) << i;
    EXPECT_EQ(second.state().hysteresis, whole.state().hysteresis) << i;
    EXPECT_EQ(second.steps(), whole.steps()) << i;
  }
}

TEST(optim_grad_scaler, refuses_a_state_that_cannot_be) {
  GradScaler scaler;
  Values values;
  scaler.state(values);
  values.load = true;
  for (auto [name, bad] :
       std::vector<std::pair<std::string, double>>{{"scaler.scale", -1},
                                                   {"scaler.scale", std::nan("")},
                                                   {"scaler.hysteresis", 0},
                                                   {"scaler.good_steps", -1}}) {
    Values other = values;
    other.kept[name] = bad;
    EXPECT_THROW(scaler.state(other), Corrupt) << name;
    EXPECT_EQ(scaler.scale(), 65536);
  }
}

}  // namespace grad_scaler_test
