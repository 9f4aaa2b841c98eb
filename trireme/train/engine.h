// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/train/call_forward.h"

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
/// ZeRO takes any module. At stage 3 the module is one unit: its parameters, gradients and
/// optimizer state lie in shards between steps, and it is whole from the first forward to the end
/// of backward (units that are whole one after the other: shard/fully_sharded.h). Outside of
/// forward, at stage 3, parameters are read in gathered().
///
/// What the configuration asks and an engine cannot do is refused, with its place: the keys of
/// config/engine_keys.h, a comm.backend or comm.timeout_s that is not the group's. steps_per_print
/// logs a line at level info; monitor.metrics is written by rank 0.
///
/// Every rank makes the same calls, from one thread. Errors as in train_step: what one rank meets
/// in its own computation ends the step for all.
/// Source: deepspeed.initialize, DeepSpeedEngine.
class TRIREME_API Engine {
 public:
  using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
  /// `forward` runs the module. Checks that ranks hold the same parameters and takes rank 0's.
  Engine(std::shared_ptr<torch::nn::Module> module, Forward forward, const Config& config,
         Group group);
  ~Engine();
  Engine(Engine&&) noexcept;

  /// The module's forward, which returns one tensor: any number of tensors goes in.
  template <class... Inputs>
  at::Tensor forward(const Inputs&... inputs) {
    static_assert((std::is_convertible_v<const Inputs&, at::Tensor> && ...),
                  "an engine's inputs are tensors");
    return only_output(forward_list({at::Tensor(inputs)...}));
  }
  template <class... Inputs>
  at::Tensor operator()(const Inputs&... inputs) {
    return forward(inputs...);
  }
  /// … which returns several: the tensors of its tuple or vector, in order.
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs);
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
  /// monitor.gradient_noise_scale, in samples; NaN while it is lost in the noise, or not asked for.
  double gradient_noise_scale() const;
  int64_t train_micro_batch_size_per_gpu() const;
  int64_t gradient_accumulation_steps() const;
  int64_t train_batch_size() const;
  Group group() const;

  /// <folder>/step-<global steps>/ with all state, at any stage; returns that path. Between steps.
  /// folder "": checkpoint.folder. Of the newest, checkpoint.keep stay, unless `keep` says another
  /// number.
  std::string save_checkpoint(const std::string& folder = "", std::optional<int> keep = {});
  /// From such a folder or the newest in it. Returns its step.
  int64_t load_checkpoint(const std::string& path);
  /// Runs `read` while parameters are whole on every rank, to be read (at stages below 3 they
  /// always are). Every rank, between steps.
  void gathered(const std::function<void()>& read);

 private:
  static at::Tensor only_output(std::vector<at::Tensor> outputs);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// `module`: a holder (`Net net;`) or a shared_ptr; its forward takes up to 8 tensors, or a vector
/// of them, and gives a tensor, or a vector or tuple of them (forward_list).
/// `config`: a file's path.
template <class Holder>
Engine initialize(Holder module, const Config& config, Group group) {
  auto forward = [module](const std::vector<at::Tensor>& inputs) mutable {
    return detail::call_forward(module, inputs);
  };
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
