// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "tests/optim/papers.h"
#include "tests/optim/state_visitors.h"
#include "trireme/optim/optimizer.h"
#include "trireme/optim/rules/rule_aten.h"

namespace adafactor_test {

using namespace trireme;

TEST(optim_adafactor, adafactor_is_the_papers) {
  for (bool scale_parameter : {true, false})
    expect_paper(
        [&](const NamedTensors& p) {
          return make_adafactor(p, {.weight_decay = kDecay, .scale_parameter = scale_parameter},
                                kGroups);
        },
        [&](Reference& r) {
          const double beta2 = 1 - std::pow(r.t, -0.8), eps1 = 1e-30;
          const auto rows = static_cast<size_t>(r.rows), columns = static_cast<size_t>(r.columns);
          std::vector<double> v(r.w.size());
          if (rows > 1) {
            auto &row = r.of("row"), &column = r.of("column");
            double total = 0;
            for (size_t i = 0; i < rows; ++i) {
              double sum = 0;
              for (size_t j = 0; j < columns; ++j)
                sum += r.g[i * columns + j] * r.g[i * columns + j] + eps1;
              row[i] = beta2 * row[i] + (1 - beta2) * sum;
              total += row[i];
            }
            for (size_t j = 0; j < columns; ++j) {
              double sum = 0;
              for (size_t i = 0; i < rows; ++i)
                sum += r.g[i * columns + j] * r.g[i * columns + j] + eps1;
              column[j] = beta2 * column[j] + (1 - beta2) * sum;
            }
            for (size_t i = 0; i < rows; ++i)
              for (size_t j = 0; j < columns; ++j) v[i * columns + j] = row[i] * column[j] / total;
          } else {
            auto& full = r.of("v");
            for (size_t j = 0; j < columns; ++j)
              v[j] = full[j] = beta2 * full[j] + (1 - beta2) * (r.g[j] * r.g[j] + eps1);
          }
          const double root_n = std::sqrt(static_cast<double>(r.w.size()));
          std::vector<double> u(r.w.size());
          for (size_t j = 0; j < u.size(); ++j) u[j] = r.g[j] / std::sqrt(v[j]);
          const double rms_u = norm(u) / root_n, rms_w = norm(r.w) / root_n;
          const double rate = r.lr * (scale_parameter ? std::max(1e-3, rms_w) : 1);
          for (size_t j = 0; j < u.size(); ++j)
            r.w[j] = r.w[j] * (1 - r.lr * r.decay) - rate * u[j] / std::max(1.0, rms_u);
        });
}

TEST(optim_adafactor, adafactor_keeps_rows_and_columns_only) {
  NamedTensors parameters = start(torch::kFloat);
  auto optimizer = make_adafactor(parameters);
  Collect seen;
  optimizer->state(seen);
  EXPECT_EQ(seen.tensors.at("optim.exp_avg_sq_row.a.weight").numel(), 43);
  EXPECT_EQ(seen.tensors.at("optim.exp_avg_sq_col.a.weight").numel(), 57);
  EXPECT_EQ(seen.tensors.at("optim.exp_avg_sq_row.b.weight").numel(), 3);
  EXPECT_EQ(seen.tensors.at("optim.exp_avg_sq_col.b.weight").numel(), 9);
  EXPECT_EQ(seen.tensors.at("optim.exp_avg_sq.a.bias").numel(), 13);
  EXPECT_EQ(seen.tensors.size(), 6u);
}

TEST(optim_adafactor, adafactors_tensor_pass_computes_what_the_fused_one_does) {
  torch::manual_seed(4);
  for (int64_t rows : {1, 7}) {
    auto w = torch::randn({rows, 33}).requires_grad_(), twin = w.detach().clone();
    auto row = rows > 1 ? torch::zeros({rows}) : at::Tensor(), column = torch::zeros({33});
    auto optimizer = make_adafactor({{"w", w}}, {.weight_decay = 0.1});
    for (int t = 1; t <= 5; ++t) {
      w.mutable_grad() = torch::randn({rows, 33});
      AdafactorScalars s;
      s.grad_scale = 0.5;
      s.keep = 1 - s.lr * 0.1;
      s.beta2 = 1 - std::pow(t, -0.8);
      adafactor_pass(twin, w.grad(), row, column, s);
      optimizer->step(s.lr, 0.5);
    }
    EXPECT_LT((w - twin).abs().max().item<double>(), 1e-6) << rows;
  }
}

}  // namespace adafactor_test
