// SPDX-License-Identifier: Apache-2.0
// Random sequences of steps over rows against the formulas, written element by element in float64:
// those of torch.optim.SparseAdam and of Adagrad with sparse gradients, and momentum of rows.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/base/philox.h"
#include "trireme/optim/rows/row_optimizer.h"

namespace row_formulas_test {

using namespace trireme;

namespace {

/// Numbers from a seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) {
    return static_cast<int64_t>(trireme::below(next(), static_cast<uint64_t>(n)));
  }
  double number() { return static_cast<double>(next() >> 11) / 9007199254740992.0 * 2 - 1; }

 private:
  uint64_t next() { return stable_hash({seed_, ++count_}); }
  uint64_t seed_, count_ = 0;
};

enum class Kind { sgd, adagrad, adam };

struct Options {
  Kind kind;
  double lr, decay, momentum, lr_decay, eps, start;
};

struct Element {
  double w = 0, a = 0, b = 0;
};

/// One element's step number t. `sparse_eps`: where SparseAdam has eps, before the correction.
void step(Element& x, double g, int t, const Options& o, bool sparse_eps) {
  if (o.kind == Kind::sgd) {
    g += o.decay * x.w;
    x.a = o.momentum * x.a + g;
    x.w -= o.lr * x.a;
  } else if (o.kind == Kind::adagrad) {
    g += o.decay * x.w;
    x.a += g * g;
    x.w -= o.lr / (1 + (t - 1) * o.lr_decay) * g / (std::sqrt(x.a) + o.eps);
  } else {
    x.w *= 1 - o.lr * o.decay;
    x.a += (1 - 0.9) * (g - x.a);
    x.b += (1 - 0.999) * (g * g - x.b);
    const double c1 = 1 - std::pow(0.9, t), c2 = 1 - std::pow(0.999, t);
    const double eps = sparse_eps ? o.eps : o.eps * std::sqrt(c2);
    x.w -= o.lr * std::sqrt(c2) / c1 * x.a / (std::sqrt(x.b) + eps);
  }
}

struct Errors {
  double own = 0, torchs = 0;
};

/// The largest differences of one sequence: from the formula with eps where this optimizer has it,
/// and from torch's.
Errors follow(uint64_t seed, at::ScalarType type) {
  Draw draw(seed);
  const int64_t rows = 1 + draw.below(12), width = 1 + draw.below(19);
  const Options o{
      static_cast<Kind>(seed % 3), 0.05, draw.below(2) ? 0.1 : 0, draw.below(2) ? 0.9 : 0,
      draw.below(2) ? 0.05 : 0,    1e-8, draw.below(2) ? 0.3 : 0};
  const at::Tensor table = torch::empty({rows, width}, type);
  std::vector<Element> own(static_cast<size_t>(rows * width));
  for (size_t i = 0; i < own.size(); ++i) {
    own[i].w = draw.number();
    if (o.kind == Kind::adagrad) own[i].a = o.start;
    table.view({-1})[static_cast<int64_t>(i)] = own[i].w;
  }
  std::vector<Element> torchs = own;
  std::unique_ptr<RowOptimizer> optimizer;
  if (o.kind == Kind::sgd)
    optimizer = make_row_sgd({"w", table}, {.momentum = o.momentum, .weight_decay = o.decay});
  else if (o.kind == Kind::adagrad)
    optimizer = make_row_adagrad({"w", table}, {.lr_decay = o.lr_decay,
                                                .eps = o.eps,
                                                .weight_decay = o.decay,
                                                .initial_accumulator_value = o.start});
  else
    optimizer = make_row_adamw({"w", table}, {.eps = o.eps, .weight_decay = o.decay});
  const int steps = 1 + static_cast<int>(draw.below(12));
  for (int t = 1; t <= steps; ++t) {
    std::vector<int64_t> touched;
    for (int64_t row = 0; row < rows; ++row)
      if (draw.below(3) > 0) touched.push_back(row);
    std::vector<double> g;
    for (size_t i = 0; i < touched.size() * static_cast<size_t>(width); ++i) {
      const double x = draw.number();
      g.push_back(x + (x < 0 ? -0.1 : 0.1));  // where eps is far below them
    }
    const double scale = draw.below(2) ? 0.5 : 1;
    const auto n = static_cast<int64_t>(touched.size());
    optimizer->step(torch::tensor(touched, torch::kLong),
                    torch::tensor(g, torch::kDouble).to(type).view({n, width}), o.lr, scale);
    for (size_t i = 0; i < g.size(); ++i) {
      const auto at = static_cast<size_t>(touched[i / static_cast<size_t>(width)] * width) +
                      i % static_cast<size_t>(width);
      step(own[at], g[i] * scale, t, o, false);
      step(torchs[at], g[i] * scale, t, o, true);
    }
  }
  Errors errors;
  const at::Tensor result = table.to(at::kDouble).view({-1});
  for (size_t i = 0; i < own.size(); ++i) {
    const double got = result[static_cast<int64_t>(i)].item<double>();
    errors.own = std::max(errors.own, std::abs(got - own[i].w));
    errors.torchs = std::max(errors.torchs, std::abs(got - torchs[i].w));
  }
  return errors;
}

}  // namespace

TEST(optim_row_formulas, a_thousand_random_sequences_of_touched_rows_follow_them) {
  Errors worst, worst_float;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const bool narrow = seed / 3 % 2 == 1;
    const Errors errors = follow(seed, narrow ? at::kFloat : at::kDouble);
    Errors& most = narrow ? worst_float : worst;
    most.own = std::max(most.own, errors.own);
    most.torchs = std::max(most.torchs, errors.torchs);
  }
  EXPECT_LT(worst.own, 1e-12);
  EXPECT_LT(worst.torchs, 1e-6);
  EXPECT_GT(worst.torchs, worst.own);  // eps is elsewhere, as the header says
  EXPECT_LT(worst_float.own, 2e-6);
}

// torch_rows.json has what torch's own optimizers made of them (torch_rows.py).
TEST(optim_row_formulas, torchs_sparse_adam_and_adagrad_take_the_same_steps) {
  const auto runs = nlohmann::json::parse(
      read_file(trireme::testing::source_path("/tests/optim/torch_rows.json")));
  ASSERT_EQ(runs.size(), 3u);
  for (const auto& run : runs) {
    const std::string name = run["name"];
    const auto matrix = [](const std::vector<double>& values) {
      return torch::tensor(values, torch::kDouble).view({-1, 3});
    };
    std::vector<double> start;
    for (const auto& row : run["start"])
      for (const double x : row) start.push_back(x);
    const at::Tensor table = matrix(start).clone();
    const bool betas = name == "sparse_adam_betas";
    const double lr = name == "adagrad" ? 0.1 : betas ? 0.05 : 0.01;
    auto optimizer =
        name == "adagrad"
            ? make_row_adagrad({"w", table}, {.lr_decay = 0.05, .initial_accumulator_value = 0.3})
            : make_row_adamw(
                  {"w", table},
                  {.beta1 = betas ? 0.8 : 0.9, .beta2 = betas ? 0.95 : 0.999, .weight_decay = 0});
    for (const auto& step : run["steps"]) {
      const std::vector<int64_t> rows = step["rows"];
      optimizer->step(torch::tensor(rows, torch::kLong), matrix(step["gradients"]), lr);
      const at::Tensor want = matrix(step["table"]);
      EXPECT_LT((table - want).abs().max().item<double>(), 1e-6) << name;
    }
  }
}

}  // namespace row_formulas_test
