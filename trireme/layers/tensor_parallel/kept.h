// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

// A value of ours that an autograd node keeps for backward: saved_data takes LibTorch's types only.
namespace trireme::detail {

template <class T>
struct Kept : torch::CustomClassHolder {
  explicit Kept(T v) : value(std::move(v)) {}
  T value;
};

template <class T>
void keep(torch::autograd::AutogradContext* ctx, T value) {
  ctx->saved_data["kept"] =
      c10::IValue::make_capsule(c10::make_intrusive<Kept<T>>(std::move(value)));
}

template <class T>
T& kept(torch::autograd::AutogradContext* ctx) {
  return static_cast<Kept<T>*>(ctx->saved_data["kept"].toCapsule().get())->value;
}

}  // namespace trireme::detail
