// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"

namespace torch::nn {
class Module;
}

namespace trireme {

/// DeepSpeed's engine around a module of yours: its ds_config.json decides optimizer, schedule,
/// batches, clipping, mixed precision, ZeRO and offload.
///
///   auto engine = trireme::initialize(net, "ds_config.json");
///   for (auto& batch : *loader) {
///     auto loss = cross_entropy(engine.forward(batch.data), batch.target);
///     engine.backward(loss);
///     engine.step();
///   }
///
/// As DeepSpeed: losses are means over the micro-batch, and a gradient is the mean over ranks and
/// micro-batches; backward() and step() are called for each micro-batch, and step() does something
/// with the last of gradient_accumulation_steps. In half precision inputs of forward() become half,
/// and so are its outputs.
///
/// ZeRO stages 1 and 2 take any module; stage 3 needs to know the units: build those with
/// shard/fully_sharded.h. Keys that are about the model and the data of `trireme train` mean
/// nothing here.
///
/// Every rank makes the same calls, from one thread. Errors as in train_step: what one rank meets
/// in its own computation ends the step for all.
/// Source: deepspeed.initialize, DeepSpeedEngine.
class TRIREME_API Engine {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&)>;
  /// `forward` runs the module. Checks that ranks hold the same parameters and takes rank 0's.
  Engine(std::shared_ptr<torch::nn::Module> module, Forward forward, const Config& config,
         Group group);
  ~Engine();
  Engine(Engine&&) noexcept;

  at::Tensor forward(const at::Tensor& input);
  at::Tensor operator()(const at::Tensor& input) { return forward(input); }
  /// A scalar, the mean over this rank's micro-batch. Scaled here, where there is a loss scale.
  void backward(const at::Tensor& loss);
  void step();

  /// The next step() takes an optimizer step.
  bool is_gradient_accumulation_boundary() const;
  int64_t global_steps() const;
  int64_t skipped_steps() const;  // overflows
  double get_lr() const;          // of the last step; before the first: of that
  double get_global_grad_norm() const;
  double loss_scale() const;  // 1 where there is none
  double loss() const;        // mean over ranks and micro-batches of the last step
  int64_t train_micro_batch_size_per_gpu() const;
  int64_t gradient_accumulation_steps() const;
  int64_t train_batch_size() const;
  const Group& group() const;

  /// <folder>/step-<global steps>/ with all state, at any stage; returns that path. Between steps.
  std::string save_checkpoint(const std::string& folder, int keep = 2);
  /// From such a folder or the newest in it. Returns its step.
  int64_t load_checkpoint(const std::string& path);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// `module`: a holder (`Net net;`) or a shared_ptr; its forward takes a tensor and gives one.
/// `config`: a file's path.
template <class Holder>
Engine initialize(Holder module, const Config& config, Group group) {
  auto forward = [module](const at::Tensor& x) mutable { return module->forward(x); };
  if constexpr (requires { module.ptr(); })
    return Engine(module.ptr(), std::move(forward), config, std::move(group));
  else
    return Engine(module, std::move(forward), config, std::move(group));
}
template <class Holder>
Engine initialize(Holder module, const std::string& config_file, Group group) {
  return initialize(std::move(module), Config::load(ConfigInputs::from({config_file})),
                    std::move(group));
}

}  // namespace trireme
