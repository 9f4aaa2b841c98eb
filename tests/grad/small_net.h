// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>

#include "trireme/base/check.h"
#include "trireme/comm/start/run.h"

// A small network for tests of grad/, and its input.
namespace trireme::testing {

struct SmallImpl : torch::nn::Module {
  SmallImpl(int64_t width = 17) {
    a = register_module("a", torch::nn::Linear(9, width));
    b = register_module("b", torch::nn::Linear(width, width));
    c = register_module("c", torch::nn::Linear(width, 3));
    seen = register_buffer("seen", torch::zeros({1}));
  }
  torch::Tensor forward(torch::Tensor x, bool use_b = true) {
    x = torch::tanh(a(x));
    if (use_b) x = torch::tanh(b(x));
    return c(x);
  }
  torch::nn::Linear a{nullptr}, b{nullptr}, c{nullptr};
  torch::Tensor seen;
};
TORCH_MODULE(Small);

inline Small make(uint64_t seed, at::ScalarType t = at::kDouble) {
  static std::mutex mutex;  // LibTorch's default generator is one for all threads
  std::lock_guard lock(mutex);
  torch::manual_seed(seed);
  Small m;
  m->to(t);
  return m;
}

inline torch::Tensor input(int64_t rows, at::ScalarType t = at::kDouble) {
  return (torch::arange(rows * 9, at::kDouble).reshape({rows, 9}) * 0.7).sin().to(t);
}

/// As EXPECT_TRUE, from a rank's thread.
inline void expect(bool ok, const std::string& what) { check<Error>(ok, "{}", what); }

/// The gradients of a module's parameters are as another's times `factor`.
inline void expect_gradients(torch::nn::Module& got, torch::nn::Module& want, double factor = 1,
                             double tolerance = 1e-10) {
  const auto wanted = want.named_parameters();
  for (const auto& item : got.named_parameters()) {
    at::Tensor w = wanted[item.key()].grad() * factor;
    at::Tensor difference = item.value().grad() - w;
    expect(difference.norm().item<double>() <= tolerance * (1e-30 + w.norm().item<double>()),
           item.key() + " differs by " + std::to_string(difference.norm().item<double>()));
  }
}

/// What each of n ranks throws out of `body`: "" for nothing, else "Kind: text". No rank may hang.
inline std::vector<std::string> what_ranks_throw(int n, const std::function<void(Group)>& body) {
  std::vector<std::string> said(static_cast<size_t>(n));
  try {
    run_threads(n, [&](Group g) {
      std::string& mine = said[static_cast<size_t>(g.rank())];
      try {
        body(g);
      } catch (const Error& e) {
        mine = std::string(e.kind()) + ": " + e.what();
      } catch (const std::exception& e) {
        mine = std::string("std: ") + e.what();
      }
    });
  } catch (const std::exception&) {
    // A group that failed may fail again as its ranks leave; what counts is in `said`.
  }
  return said;
}

}  // namespace trireme::testing
