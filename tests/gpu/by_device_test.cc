// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/by_device.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/gpu/stand_in.h"
#include "tests/shard/sharded_nets.h"
#include "trireme/grad/ddp.h"
#include "trireme/optim/grad_scaler.h"
#include "trireme/shard/sharded_data_parallel.h"
#include "trireme/shard/sharded_optimizer.h"

namespace by_device_test {

using namespace trireme;
using namespace trireme::testing;

TEST(gpu_by_device, tensors_of_both_go_their_ways) {
  TRIREME_NEEDS_GPU();
  run_on_gpus_and_cpus(2, [](Group g, at::Device device) {
    at::Tensor here = at::ones({3}), there = here.to(device);
    g.all_reduce(here).wait();
    g.all_reduce(there).wait();
    expect(there.is_cuda() && there.cpu().equal(here), "another sum");
    Group part = g.split(0, -g.rank());
    part.broadcast(there, 0).wait();
    g.barrier();
  });
}

TEST(gpu_by_device, a_call_with_tensors_of_both_is_refused_and_the_group_goes_on) {
  TRIREME_NEEDS_GPU();
  run_on_gpus_and_cpus(2, [](Group g, at::Device device) {
    at::Tensor here = at::ones({4}), there = at::ones({2}, device);
    const auto refused = [](const auto& body) {
      try {
        body();
      } catch (const UsageError& e) {
        return std::string(e.what());
      }
      return std::string("not refused");
    };
    const std::string both = refused([&] { g.all_gather_into_tensor(here, there).wait(); });
    expect(both.find("the input is on cuda:") != std::string::npos &&
               both.find("and the output on cpu; move one") != std::string::npos,
           both.c_str());
    at::Tensor small = at::ones({2}), large = at::ones({4}, device);
    const std::string other = refused([&] { g.reduce_scatter_tensor(small, large).wait(); });
    expect(other.find("move one of them") != std::string::npos, other.c_str());
    g.all_reduce(here).wait();
    expect(here.eq(2).all().item<bool>(), "the group does not go on");
  });
}

TEST(gpu_by_device, ddp_and_zero_train_on_both) {
  TRIREME_NEEDS_GPU();
  const auto trained = [](Group g, at::Device device, bool zero) {
    Small net = wide();
    net->to(device);
    const auto steps = [&](auto& optimizer, const std::function<void()>& clip) {
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        mean_loss(net, part(rows_of_step(step), g).to(device)).backward();
        clip();
        optimizer.step();
      }
    };
    if (zero) {
      ShardedDataParallel sharded(net, g);
      ShardedOptimizer<torch::optim::SGD> optimizer(sharded.sharded(),
                                                    torch::optim::SGDOptions(0.1));
      steps(optimizer, [&] { sharded.sharded().clip_grad_norm_(0.1); });
    } else {
      DistributedDataParallel ddp(net, g);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      GradScaler scaler({}, g);
      NamedTensors parameters;
      for (const auto& p : net->named_parameters()) parameters.emplace_back(p.key(), p.value());
      steps(optimizer, [&] { expect(scaler.check(parameters).finite, "not finite"); });
    }
    std::vector<at::Tensor> weights;
    for (const auto& p : net->parameters()) weights.push_back(p.detach().cpu().clone());
    return weights;
  };
  for (const bool zero : {false, true}) {
    run_on_gpus_and_cpus(2, [&](Group g, at::Device device) {
      const auto both = trained(g, device, zero), cpu = trained(g, at::kCPU, zero);
      for (size_t i = 0; i < both.size(); ++i)
        expect(both[i].allclose(cpu[i], 1e-9, 1e-9), "weights differ");
    });
  }
}

}  // namespace by_device_test
