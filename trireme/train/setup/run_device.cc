// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/run_device.h"

#include "trireme/base/check.h"
#include "trireme/comm/objects.h"
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

/// Ranks of different kinds make different calls: refused before the first of them.
void check_one_kind(const Config& config, const Group& group, at::Device device) {
  if (group.size() == 1) return;
  const auto all = all_gather_object(group, device_text(device));
  const std::string origin = config.origin("device"),
                    place = origin == "default" ? "device" : origin;
  const auto kind = [](const std::string& text) { return text.substr(0, text.find(':')); };
  for (size_t rank = 1; rank < all.size(); ++rank)
    check<UsageError>(kind(all[rank]) == kind(all[0]),
                      "{}: rank 0 computes on {} and rank {} on {}: give all ranks of a run the "
                      "same kind of device (auto is the CPU on a host without a GPU)",
                      place, all[0], rank, all[rank]);
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
  check_one_kind(config, group, device);
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
  check_one_kind(config, group, device);
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
