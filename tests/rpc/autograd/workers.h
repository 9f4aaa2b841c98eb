// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/rpc/workers.h"
#include "trireme/rpc/autograd/context.h"
#include "trireme/rpc/codec/tensor.h"

// Workers that take part in contexts.
namespace trireme::rpc_test {

using at::Tensor;
using rpc::autograd::Context;

inline rpc::Worker start_with_autograd(const Job& job, const std::string& name,
                                       std::vector<rpc::Offer> offers = {},
                                       std::vector<rpc::Road> roads = {}) {
  offers.push_back(rpc::autograd::offer());
  auto options = job.options(name, std::move(offers));
  if (!roads.empty()) options.roads = std::move(roads);
  options.threads = 4;
  options.most_threads = 16;
  return rpc::init(options);
}

/// What a parameter got on a worker; undefined: nothing.
inline Tensor gradient_at(const rpc::Worker& worker, const rpc::autograd::ContextId& id,
                          const Tensor& parameter) {
  try {
    for (const auto& [leaf, gradient] : rpc::autograd::gradients(worker, id))
      if (leaf.is_same(parameter)) return gradient;
  } catch (const UsageError&) {  // the context has not come there
  }
  return {};
}

inline Tensor leaf(std::vector<double> values) {
  return at::tensor(values, at::kDouble).requires_grad_();
}

inline bool near(const Tensor& got, const Tensor& wanted, double within = 1e-12) {
  if (!got.defined() || !wanted.defined()) return got.defined() == wanted.defined();
  if (got.sizes() != wanted.sizes()) return false;
  const double scale = std::max(1.0, wanted.abs().max().item<double>());
  return (got - wanted).abs().max().item<double>() <= within * scale;
}

}  // namespace trireme::rpc_test
