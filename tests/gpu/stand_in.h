// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <functional>

#include "trireme/comm/group.h"

// What is for CUDA tensors is tested on every machine. Where LibTorch sees no GPU, two stand in for
// it: CUDA devices whose memory this process cannot read or write, as it cannot a GPU's (code that
// does dies of SIGSEGV), whose kernels are the CPU's, and a group that, as NCCL, moves their
// tensors and no others. What they do not show: streams, the caching allocator, speed, a GPU's
// rounding, NCCL itself.
namespace trireme::testing {

/// The devices that tests may use: a machine's GPUs, or those that stand in for them. 0: this
/// LibTorch is of 2.x, for which there are no stand-ins, and sees no GPU.
int gpu_count();
bool gpus_stand_in();

/// fn as ranks of a group for CUDA tensors, each with a device of its own as the current one: a
/// process and a GPU each over nccl (at most n, as many as there are), or n threads.
void run_on_gpus(int n, const std::function<void(Group, at::Device)>& fn);

#define TRIREME_NEEDS_GPU() \
  if (trireme::testing::gpu_count() == 0) GTEST_SKIP() << "needs a GPU"

}  // namespace trireme::testing
