// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel whose forward goes through other workers: the gradients and the weights
// of one process.
#include "trireme/grad/ddp.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <mutex>
#include <string>
#include <vector>

#include "tests/rpc/autograd/workers.h"
#include "trireme/comm/start/run.h"

namespace trireme::rpc_autograd_ddp_test {
namespace {

using namespace rpc_test;

constexpr int kTrainers = 2, kSteps = 4;
constexpr double kLr = 0.25;

/// A table whose rows are looked up at its worker, and a scale that everything may pass through.
struct Remote {
  Tensor table = (at::arange(20, at::kDouble).reshape({5, 4}) / 7 - 1).requires_grad_();
  Tensor scale = leaf({1, -0.5, 2, 0.25});
  Tensor rows(const Tensor& ids) { return table.index_select(0, ids); }
  Tensor scaled(const Tensor& x) { return (x * scale).tanh(); }
  void step() {
    at::NoGradGuard no_grad;
    for (Tensor* parameter : {&table, &scale}) {
      if (!parameter->grad().defined()) continue;
      parameter->sub_(kLr * parameter->grad());
      parameter->mutable_grad() = Tensor();
    }
  }
};
TRIREME_REMOTE(rows_there, &Remote::rows);
TRIREME_REMOTE(scaled_there, &Remote::scaled);
TRIREME_REMOTE(step_there, &Remote::step);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    before = register_module("before", torch::nn::Linear(4, 4));
    after = register_module("after", torch::nn::Linear(4, 1));
    to(at::kDouble);
    at::NoGradGuard no_grad;
    double value = 0.1;
    for (auto& parameter : parameters())
      parameter.copy_((at::arange(parameter.numel(), at::kDouble) * (value += 0.07))
                          .sin()
                          .reshape(parameter.sizes()));
  }
  torch::nn::Linear before{nullptr}, after{nullptr};
};
TORCH_MODULE(Net);

Tensor ids_of(int step, int rank) {
  return at::tensor({int64_t{step % 5}, int64_t{(step + 2 * rank + 1) % 5}, int64_t{3}});
}

/// Both ways at once: from the worker's table, and through the worker in the middle.
template <class Rows, class Scaled>
Tensor loss_of(Net& net, int step, int rank, const Rows& rows, const Scaled& scaled) {
  const Tensor hidden = net->before->forward(rows(ids_of(step, rank)));
  const Tensor y = net->after->forward(scaled(hidden) + hidden);
  return (y - 0.1 * (step + rank)).pow(2).mean();
}

void step_locally(Net& net, double divisor) {
  at::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    parameter.sub_(kLr / divisor * parameter.grad());
    parameter.mutable_grad() = Tensor();
  }
}

}  // namespace

TEST(rpc_autograd_ddp, trainers_around_a_remote_part_have_the_weights_of_one_process) {
  Net alone;
  Remote remote_alone;
  for (int step = 0; step < kSteps; ++step) {
    Tensor loss;
    for (int rank = 0; rank < kTrainers; ++rank) {
      const Tensor one = loss_of(
          alone, step, rank, [&](const Tensor& ids) { return remote_alone.rows(ids); },
          [&](const Tensor& x) { return remote_alone.scaled(x); });
      loss = loss.defined() ? loss + one : one;
    }
    loss.backward();
    step_locally(alone, kTrainers);  // DDP's gradients are means, those of the worker are sums
    remote_alone.step();
  }

  const Job job{50us, 31};
  const auto remote = std::make_shared<Remote>();
  const auto server = start_with_autograd(
      job, "server0", {rpc::offer<rows_there, scaled_there, step_there>(remote)});
  run_threads(kTrainers, [&](Group g) {
    auto me = start_with_autograd(job, "trainer" + std::to_string(g.rank()));
    const rpc::Peer there = me.peer("server0");
    Net net;
    DistributedDataParallel ddp(net, g);
    for (int step = 0; step < kSteps; ++step) {
      {
        Context context(me);
        const Tensor loss = loss_of(
            net, step, g.rank(), [&](const Tensor& ids) { return there.sync<rows_there>(ids); },
            [&](const Tensor& x) { return there.sync<scaled_there>(x); });
        context.backward({loss}, {.accumulate = true});
      }
      step_locally(net, 1);
      g.barrier();  // all gradients are at the server
      if (g.rank() == 0) there.sync<step_there>();
      g.barrier();
    }
    const auto got = net->parameters(), wanted = alone->parameters();
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(near(got[i].detach(), wanted[i].detach())) << "rank " << g.rank() << ", " << i;
    me.shutdown({.graceful = false, .deadline = kPlenty});
  });
  EXPECT_TRUE(near(remote->table.detach(), remote_alone.table.detach()));
  EXPECT_TRUE(near(remote->scale.detach(), remote_alone.scale.detach()));
}

}  // namespace trireme::rpc_autograd_ddp_test
