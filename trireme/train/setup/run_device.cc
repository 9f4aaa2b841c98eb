// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/run_device.h"

#include "trireme/base/check.h"
#include "trireme/config/sections/offload.h"
#include "trireme/config/sections/training.h"
#include "trireme/config/sections/zero.h"
#include "trireme/rendezvous/rank_env.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/module_device.h"

namespace trireme {
namespace {

at::Device chosen(const Config& config, int local_rank) {
  try {
    return choose_device(config.section<TrainingSection>().device, local_rank);
  } catch (const UsageError& e) {
    fail<UsageError>("{}: {}", config.origin("device"), e.what());
  }
}

int local_rank_in(const Group& group) {
  const RankEnv env = read_rank_env();
  return env.world_size > 1 ? env.local_rank : group.rank();
}

void check_backend(const Config& config, const Group& group, at::Device device) {
  check<UsageError>(group.supports(Collective::all_reduce, at::kFloat, device.type()),
                    "{}: training on {} needs a group that takes its tensors, and the {} backend "
                    "does not: set device to cpu, or use another backend",
                    config.origin("device"), device_text(device), group.backend());
}

}  // namespace

at::Device run_device(const Config& config) { return chosen(config, read_rank_env().local_rank); }

at::Device run_device(const Config& config, const Group& group) {
  const at::Device device = chosen(config, local_rank_in(group));
  check_backend(config, group, device);
  return device;
}

at::Device engine_device(const Config& config, const torch::nn::Module& module,
                         const Group& group) {
  at::Device device = device_of(module);
  if (config.section<TrainingSection>().device != "auto") {
    const at::Device wanted = chosen(config, local_rank_in(group));
    check<UsageError>(device.is_cpu() || device == wanted,
                      "{}: device is {}, and the module passed to initialize() is on {}: leave it "
                      "on the CPU, or put it on {}",
                      config.origin("device"), device_text(wanted), device_text(device),
                      device_text(wanted));
    device = wanted;
  }
  check_backend(config, group, device);
  return device;
}

void check_device(const Config& config, at::Device device) {
  if (device.is_cpu()) return;
  const auto refuse = [&](bool asked, const char* key, const std::string& why) {
    check<UsageError>(!asked, "{}: {} {}, and this run trains on {}", config.origin(key), key, why,
                      device_text(device));
  };
  const auto offload = config.section<OffloadSection>();
  const bool sharded = config.applies("zero_optimization.share_weights");
  refuse(sharded && config.section<ZeroSection>().share_weights, "zero_optimization.share_weights",
         "keeps one copy in the memory of the CPU that all ranks of a host compute with: turn it "
         "off");
  refuse(config.applies("zero_optimization.offload_param.device") &&
             offload.parameters.device != "none",
         "zero_optimization.offload_param.device",
         "keeps parameters where the CPU computes with them: remove it, or set device to cpu");
}

std::string describe_device(at::Device device) {
  return device.is_cpu() ? "" : "on " + device_text(device);
}

}  // namespace trireme
