// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "trireme/optim/rows/row_optimizer.h"
#include "trireme/optim/rows/touched_rows.h"
#include "trireme/optim/rules/adamw_scalars.h"
#include "trireme/optim/rules/option_checks.h"
#include "trireme/optim/rules/rule_aten.h"
#include "trireme/optim/rules/rule_kernels.h"

namespace trireme {
namespace {

class RowSgd final : public RowOptimizer {
 public:
  RowSgd(RowTable table, const SgdOptions& options)
      : RowOptimizer("row SGD", std::move(table)), options_(options) {
    if (options_.momentum != 0) add_state("momentum");
  }

 private:
  void update(const Touched& t, double lr, double grad_scale) override {
    const SgdScalars s{grad_scale, lr, options_.weight_decay, options_.momentum, options_.nesterov};
    const std::array<at::Tensor, 1> states{t.states.empty() ? at::Tensor() : t.states[0]};
    if (t.on_device())
      on_any_device(t, states, [&](const at::Tensor& p, const at::Tensor& g, const auto& own) {
        sgd_pass(p, g, list_of(own[0]), s);
      });
    else
      on_cpu(t, states, [&](auto* p, const auto* g, const auto& own, int64_t n) {
        sgd_pass(p, g, own[0], n, s);
      });
  }

  const SgdOptions options_;
};

class RowAdagrad final : public RowOptimizer {
 public:
  RowAdagrad(RowTable table, const AdagradOptions& options)
      : RowOptimizer("row Adagrad", std::move(table)), options_(options) {
    add_state("sum", options_.initial_accumulator_value);
  }

 private:
  void update(const Touched& t, double lr, double grad_scale) override {
    const auto before = static_cast<double>(steps_ - 1);
    const AdagradScalars s{grad_scale, options_.weight_decay, options_.eps,
                           lr / (1 + before * options_.lr_decay)};
    const std::array<at::Tensor, 1> states{t.states[0]};
    if (t.on_device())
      on_any_device(t, states, [&](const at::Tensor& p, const at::Tensor& g, const auto& own) {
        adagrad_pass(p, g, own[0], s);
      });
    else
      on_cpu(t, states, [&](auto* p, const auto* g, const auto& own, int64_t n) {
        adagrad_pass(p, g, own[0], n, s);
      });
  }

  const AdagradOptions options_;
};

class RowAdamW final : public RowOptimizer {
 public:
  RowAdamW(RowTable table, const AdamWOptions& options)
      : RowOptimizer("row AdamW", std::move(table)), options_(options) {
    add_state("exp_avg");
    add_state("exp_avg_sq");
    if (options_.amsgrad) add_state("max_exp_avg_sq");
  }

 private:
  void update(const Touched& t, double lr, double grad_scale) override {
    const AdamWScalars s = adamw_scalars(options_, steps_, lr, options_.weight_decay, grad_scale);
    const std::array<at::Tensor, 3> states{t.states[0], t.states[1],
                                           options_.amsgrad ? t.states[2] : at::Tensor()};
    if (t.on_device())
      on_any_device(t, states, [&](const at::Tensor& p, const at::Tensor& g, const auto& own) {
        adamw_pass(p, g, own[0], own[1], list_of(own[2]), s);
      });
    else
      on_cpu(t, states, [&](auto* p, const auto* g, const auto& own, int64_t n) {
        options_.amsgrad ? amsgrad_pass(p, g, own[0], own[1], own[2], n, s)
                         : adamw_pass(p, g, own[0], own[1], n, s);
      });
  }

  const AdamWOptions options_;
};

}  // namespace

std::unique_ptr<RowOptimizer> make_row_sgd(RowTable table, const SgdOptions& options) {
  check_options(options);
  check<UsageError>(options.dampening == 0,
                    "row SGD: dampening is {}: it treats a parameter's first gradient apart, and "
                    "rows do not count theirs: leave it out",
                    options.dampening);
  return std::make_unique<RowSgd>(std::move(table), options);
}

std::unique_ptr<RowOptimizer> make_row_adagrad(RowTable table, const AdagradOptions& options) {
  check_options(options);
  return std::make_unique<RowAdagrad>(std::move(table), options);
}

std::unique_ptr<RowOptimizer> make_row_adamw(RowTable table, const AdamWOptions& options) {
  check_options(options);
  return std::make_unique<RowAdamW>(std::move(table), options);
}

}  // namespace trireme
