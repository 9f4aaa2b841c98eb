// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/optim/rows/row_optimizer.h"

namespace trireme {

/// An optimizer of rows, and the dense one with the same options.
struct RowMaker {
  const char* name;
  std::function<std::unique_ptr<RowOptimizer>(RowTable)> make;
  std::function<std::unique_ptr<Optimizer>(NamedTensors)> dense;
};

inline RowMaker row_sgd(const char* name, SgdOptions o) {
  return {name, [o](RowTable t) { return make_row_sgd(std::move(t), o); },
          [o](NamedTensors p) { return make_sgd(std::move(p), o); }};
}
inline RowMaker row_adagrad(const char* name, AdagradOptions o) {
  return {name, [o](RowTable t) { return make_row_adagrad(std::move(t), o); },
          [o](NamedTensors p) { return make_adagrad(std::move(p), o); }};
}
inline RowMaker row_adamw(const char* name, AdamWOptions o) {
  return {name, [o](RowTable t) { return make_row_adamw(std::move(t), o); },
          [o](NamedTensors p) { return make_adamw(std::move(p), o); }};
}

/// Every kind, with options that reach each of its variants.
inline std::vector<RowMaker> row_makers() {
  return {row_sgd("SGD", {}),
          row_sgd("SGD with decay", {.weight_decay = 0.1}),
          row_sgd("momentum", {.momentum = 0.9}),
          row_sgd("nesterov", {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}),
          row_adagrad("Adagrad", {}),
          row_adagrad("Adagrad with decay",
                      {.lr_decay = 0.1, .weight_decay = 0.1, .initial_accumulator_value = 0.5}),
          row_adamw("AdamW", {}),
          row_adamw("Adam", {.weight_decay = 0.1, .decoupled = false}),
          row_adamw("AMSGrad", {.amsgrad = true}),
          row_adamw("uncorrected", {.bias_correction = false}),
          row_adamw("frozen", {.freeze_step = 3})};
}

}  // namespace trireme
