// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/rpc/autograd/workers.h"

// A trainer and two servers, each with a parameter, for tests of contexts.
namespace trireme::rpc_autograd_context_test {

using namespace rpc_test;
using rpc::Future;
using Tensors = std::vector<Tensor>;

inline Tensor add(const Tensor& a, const Tensor& b) { return a + b; }
TRIREME_REMOTE(add_there, add);
TRIREME_REMOTE(both, [](const Tensor& x) { return Tensors{x * 2, x * 3}; });
TRIREME_REMOTE(same, [](const Tensor& x) { return x; });
TRIREME_REMOTE(round_there, [](const Tensor& x) { return x.to(at::kLong); });

/// A worker's parameter, and what it does with it.
struct Model {
  Tensor weight = leaf({1, 2, 3});
  Tensor saved;
  std::function<void(Tensor&)> before_return = [](Tensor&) {};
  const rpc::Worker* me = nullptr;
  rpc::Peer peer(const char* name) const { return me->peer(name); }

  Tensor times(const Tensor& x) {
    Tensor y = x * weight;
    before_return(y);
    return y;
  }
  /// A → B → A → C → A: this worker's part is the odd one.
  Tensor through(const Tensor& x, int left);
  Future<Tensor> later(const Tensor& x);
  Tensor trains_itself(const Tensor& x);
  void spoils() { saved.mul_(2); }
  Tensor exponential(const Tensor& x) { return saved = (x * weight).exp(); }
  Tensor sees_no_gradients(const Tensor& x) {
    at::NoGradGuard no_grad;
    return x * weight;
  }
};
TRIREME_REMOTE(times, &Model::times);
TRIREME_REMOTE(through, &Model::through);
TRIREME_REMOTE(later, &Model::later);
TRIREME_REMOTE(trains_itself, &Model::trains_itself);
TRIREME_REMOTE(spoils, &Model::spoils);
TRIREME_REMOTE(exponential, &Model::exponential);
TRIREME_REMOTE(sees_no_gradients, &Model::sees_no_gradients);

class ContextWorkers : public ::testing::Test {
 protected:
  static constexpr const char* kNames[] = {"trainer0", "server0", "server1"};

  void SetUp() override {
    for (const char* name : kNames) {
      models.push_back(std::make_shared<Model>());
      workers.push_back(start_with_autograd(
          job, name,
          {rpc::offer<times, through, later, trains_itself, spoils, exponential, sees_no_gradients>(
               models.back()),
           rpc::offer<add_there, both, same, round_there>()}));
    }
    for (size_t i = 0; i < models.size(); ++i) models[i]->me = &workers[i];
  }
  void TearDown() override {
    for (const auto& worker : workers)
      EXPECT_TRUE(comes_about([&] { return rpc::autograd::contexts(worker) == 0; }))
          << worker.name();
  }

  const rpc::Worker& me() { return workers[0]; }
  rpc::Peer server(const char* name = "server0") { return me().peer(name); }
  Tensor at_server(const Context& context, size_t i = 1) {
    return gradient_at(workers[i], context.id(), models[i]->weight);
  }

  Job job{100us, 11};
  std::vector<std::shared_ptr<Model>> models;
  std::vector<rpc::Worker> workers;
};

inline Tensor Model::through(const Tensor& x, int left) {
  static constexpr const char* kWay[] = {"trainer0", "server1", "trainer0", "server0"};
  const Tensor y = x * weight + x;
  return left == 0 ? y : peer(kWay[left - 1]).sync<struct through>(y, left - 1) * weight;
}
inline Future<Tensor> Model::later(const Tensor& x) {
  const Tensor once = co_await peer("server1").async<struct times>(x);
  const Tensor twice = co_await peer("server1").async<struct times>(once * weight);
  co_return twice + once;
}
inline Tensor Model::trains_itself(const Tensor& x) {
  Tensor y = x * weight;
  {
    const Tensor own = leaf({4, 5, 6});
    Context inner(*me);
    inner.backward({peer("server1").sync<struct times>(own).sum()});
    y = y + inner.gradient(own);
  }
  return y;
}

}  // namespace trireme::rpc_autograd_context_test
