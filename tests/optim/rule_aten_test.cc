// SPDX-License-Identifier: Apache-2.0
// What parameters on other devices than the CPU use; here on CPU memory against the fused passes,
// to the last bit.
#include "trireme/optim/rules/rule_aten.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "trireme/optim/norm_aten.h"
#include "trireme/optim/rules/rule_kernels.h"

namespace rule_aten_test {

using namespace trireme;

TEST(optim_rule_aten, adamw_and_sgd_compute_what_the_fused_ones_do) {
  torch::manual_seed(3);
  auto p = torch::randn({50}), g = torch::randn({50}), m = torch::randn({50}),
       v = torch::rand({50});
  for (double l2 : {0.0, 0.1}) {
    AdamWScalars s{0.5, l2, 0.99, 0.9, 0.95, 1e-8, 1e-2, 1.5};
    auto p1 = p.clone(), m1 = m.clone(), v1 = v.clone(), p2 = p.clone(), m2 = m.clone(),
         v2 = v.clone();
    adamw_pass(p1, g, m1, v1, {}, s);
    adamw_pass(p2.data_ptr<float>(), g.data_ptr<float>(), m2.data_ptr<float>(),
               v2.data_ptr<float>(), 50, s);
    EXPECT_TRUE(p1.equal(p2) && m1.equal(m2) && v1.equal(v2));
    auto most1 = torch::rand({50}), most2 = most1.clone();
    adamw_pass(p1, g, m1, v1, most1, s);
    amsgrad_pass(p2.data_ptr<float>(), g.data_ptr<float>(), m2.data_ptr<float>(),
                 v2.data_ptr<float>(), most2.data_ptr<float>(), 50, s);
    EXPECT_TRUE(p1.equal(p2) && most1.equal(most2));
  }
  for (bool nesterov : {false, true}) {
    SgdScalars s{0.5, 0.1, 0.01, 0.9, nesterov, nesterov ? 1 : 0.3};
    auto p1 = p.clone(), m1 = m.clone(), p2 = p.clone(), m2 = m.clone();
    sgd_pass(p1, g, m1, s);
    sgd_pass(p2.data_ptr<float>(), g.data_ptr<float>(), m2.data_ptr<float>(), 50, s);
    EXPECT_TRUE(p1.equal(p2) && m1.equal(m2));
  }
}

TEST(optim_rule_aten, those_of_the_others_compute_what_the_fused_ones_do) {
  constexpr int64_t n = 50;
  torch::manual_seed(3);
  const auto p = torch::randn({n}), g = torch::randn({n}), m = torch::randn({n}) * 0.1,
             v = torch::rand({n}) + 1, b = torch::randn({n});
  struct Set {
    at::Tensor p, m, v, b;
  };
  auto fresh = [&] { return Set{p.clone(), m.clone(), v.clone(), b.clone()}; };
  auto at = [](const at::Tensor& t) { return t.data_ptr<float>(); };
  auto same = [](const Set& x, const Set& y) {
    return x.p.equal(y.p) && x.m.equal(y.m) && x.v.equal(y.v) && x.b.equal(y.b);
  };
  {
    Set x = fresh(), y = fresh();
    LionScalars s{0.5, 0.99, 0.9, 0.99, 0.01};
    lion_pass(x.p, g, x.m, s);
    lion_pass(at(y.p), g.data_ptr<float>(), at(y.m), n, s);
    EXPECT_TRUE(same(x, y));
  }
  {
    Set x = fresh(), y = fresh();
    AdaModScalars s{0.5, 0.99, 0.9, 0.99, 0.9, 1e-8, 0.01};
    adamod_pass(x.p, g, x.m, x.v, x.b, s);
    adamod_pass(at(y.p), g.data_ptr<float>(), at(y.m), at(y.v), at(y.b), n, s);
    EXPECT_TRUE(same(x, y));
  }
  for (bool centered : {false, true})
    for (double momentum : {0.0, 0.9}) {
      Set x = fresh(), y = fresh();
      RmspropScalars s{0.5, 0.1, 0.9, 1e-8, momentum, centered, 0.01};
      rmsprop_pass(x.p, g, x.v, x.m, x.b, s);
      rmsprop_pass(at(y.p), g.data_ptr<float>(), at(y.v), at(y.m), at(y.b), n, s);
      EXPECT_TRUE(same(x, y)) << centered << momentum;
    }
  {
    Set x = fresh(), y = fresh();
    AdagradScalars s{0.5, 0.1, 1e-10, 0.01};
    adagrad_pass(x.p, g, x.v, s);
    adagrad_pass(at(y.p), g.data_ptr<float>(), at(y.v), n, s);
    EXPECT_TRUE(same(x, y));
  }
  for (double momentum : {0.0, 0.9}) {
    Set x = fresh(), y = fresh();
    LarsScalars s{0.5, 0.1, momentum, 0.01};
    lars_pass(x.p, g, x.b, s);
    lars_pass(at(y.p), g.data_ptr<float>(), at(y.b), n, s);
    EXPECT_TRUE(same(x, y)) << momentum;
  }
  {
    Set x = fresh(), y = fresh();
    LambScalars s{0.5, 0.9, 0.99, 1e-8, 0.1, 1.5, 1.25};
    lamb_moments(g, x.m, x.v, s);
    double ours[2] = {};
    DeviceSquareSums sums;
    sums.add(p, &ours[0]);
    sums.add(lamb_direction(x.p, x.m, x.v, s)[0], &ours[1]);
    lamb_update(x.p, x.m, x.v, s, 0.01);
    sums.fetch();
    lamb_moments(g.data_ptr<float>(), at(y.m), at(y.v), n, s);
    double w_sum = 0, u_sum = 0;
    lamb_square_sums(at(y.p), at(y.m), at(y.v), n, s, &w_sum, &u_sum);
    EXPECT_EQ(ours[0], w_sum);
    EXPECT_EQ(ours[1], u_sum);
    lamb_update(at(y.p), at(y.m), at(y.v), n, s, 0.01);
    EXPECT_TRUE(same(x, y));
  }
}

}  // namespace rule_aten_test
