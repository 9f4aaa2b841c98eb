// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

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
#include "trireme/mesh/mesh.h"
#include "trireme/train/call_forward.h"
#include "trireme/train/setup/model_mesh.h"

namespace torch::nn {
class Module;
}

namespace trireme {

/// DeepSpeed's engine around your own module: its ds_config.json determines optimizer, schedule,
/// batches, clipping, mixed precision, ZeRO and offload.
///
///   auto engine = trireme::initialize(net, "ds_config.json", world);
///   for (auto& batch : *loader) {
///     auto loss = cross_entropy(engine.forward(batch.data), batch.target);
///     engine.backward(loss);
///     engine.step();
///   }
///
/// As in DeepSpeed, losses are means over the micro-batch, and a gradient is the mean over ranks
/// and micro-batches. Call backward() and step() for each micro-batch; only the last of
/// gradient_accumulation_steps calls to step() takes an optimizer step. In half precision,
/// forward() converts its inputs to half and returns half outputs.
///
/// ZeRO works with any module. At stage 3 the module is one unit: parameters, gradients and
/// optimizer state are sharded between steps, and the module is whole from the first forward to the
/// end of backward (shard/fully_sharded.h splits a module into several units). Outside forward(),
/// read stage 3 parameters inside gathered().
///
/// A module of tensor-parallel layers (parallelism.tp; layers/tensor_parallel) is made with the
/// groups of the mesh, and initialize() is given the mesh:
///
///   const DeviceMesh mesh = mesh_of(config, world);
///   Net net(tensor_parallel_of(config, mesh));
///   init_unset(*net, seed);
///   auto engine = trireme::initialize(net, config, mesh);
///
/// All ranks of axis tp then give forward() the same inputs and backward() the same loss, and the
/// ranks of axis dp others (data_parallel()): train_batch_size counts the latter. The first inputs
/// are compared. trireme::Dropout drops alike on ranks of tp; torch's is refused. What the layers
/// divide is trained and saved as parts of whole parameters; the rest begins with rank 0's values.
///
/// Settings that an engine cannot honour are refused with their place in the file: the keys of
/// config/engine_keys.h, and a comm.backend or comm.timeout_s that differs from the group's.
/// steps_per_print logs a line at level info; rank 0 writes monitor.metrics.
///
/// `device`: a module on the CPU goes where it says, in place; with auto, the default, a module
/// stays where it is, on any device. Inputs of forward() must be there (device()). Calls make it
/// the thread's current device and use its current stream.
///
/// Every rank must make the same calls in the same order, from one thread. An error in one rank's
/// computation ends the step on all ranks. Source: deepspeed.initialize, DeepSpeedEngine.
class TRIREME_API Engine {
 public:
  using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
  /// `forward` runs the module. Checks that all ranks hold the same parameters and broadcasts rank
  /// 0's values. Every rank must construct it.
  Engine(std::shared_ptr<torch::nn::Module> module, Forward forward, const Config& config,
         Group group);
  /// On the ranks of a mesh that mesh_of() made of the same configuration. An error on one of them
  /// ends the mesh's groups, and the others throw what it was.
  Engine(std::shared_ptr<torch::nn::Module> module, Forward forward, const Config& config,
         const DeviceMesh& mesh);
  ~Engine();
  Engine(Engine&&) noexcept;

  /// Runs the module's forward, which takes any number of tensors and returns one.
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
  /// Runs a forward that returns several tensors: those of its tuple or vector, in order.
  std::vector<at::Tensor> forward_list(const std::vector<at::Tensor>& inputs);
  /// Runs backward. `loss` is a scalar, the mean over this rank's micro-batch; backward() applies
  /// the loss scale if there is one.
  void backward(const at::Tensor& loss);
  /// Call it after every backward(). At an accumulation boundary it takes an optimizer step.
  void step();

  /// Whether the next step() takes an optimizer step.
  bool is_gradient_accumulation_boundary() const;
  int64_t global_steps() const;
  int64_t skipped_steps() const;  // overflows
  double get_lr() const;          // of the last step; before any step, that of the first
  double get_global_grad_norm() const;
  double loss_scale() const;  // 1 without loss scaling
  double loss() const;        // of the last step: mean over ranks and micro-batches
  /// The value of monitor.gradient_noise_scale, in samples; NaN if it is not enabled or cannot be
  /// estimated yet.
  double gradient_noise_scale() const;
  int64_t train_micro_batch_size_per_gpu() const;
  int64_t gradient_accumulation_steps() const;
  int64_t train_batch_size() const;
  Group group() const;
  /// The ranks that take other samples than this one: those that hold parts of the same layers
  /// (parallelism.tp) have the same rank in it. For a DistributedSampler.
  Group data_parallel() const;
  at::Device device() const;

  /// Writes all state to <folder>/step-<global steps>/, at any stage, and returns that path. If
  /// `folder` is empty, checkpoint.folder is used. Keeps the newest `keep` checkpoints (default:
  /// checkpoint.keep). Every rank must call it, between steps.
  ///
  /// With checkpoint.async it returns as soon as the state has been copied, and the step is
  /// published while training continues (checkpoint/async_saver.h). Its errors are thrown by the
  /// next call of save_checkpoint(), wait_for_checkpoint() or load_checkpoint(); the engine's
  /// destructor waits and logs them.
  std::string save_checkpoint(const std::string& folder = "", std::optional<int> keep = {});
  /// Waits until the last save_checkpoint() is published. Every rank must call it.
  void wait_for_checkpoint();
  /// Loads a checkpoint from its folder, or the newest one below `path`, and returns its step.
  /// Every rank must call it, between steps. If it throws after steps have been taken, the state is
  /// what it was; before the first step it may be part old and part new (LoadOptions::check_first).
  int64_t load_checkpoint(const std::string& path);
  /// Runs `read` while all parameters are whole on every rank, so that it can read them (below
  /// stage 3 they always are). Every rank must call it, between steps.
  void gathered(const std::function<void()>& read);

 private:
  void build(std::shared_ptr<torch::nn::Module> module, Forward forward, const Config& config,
             Group group, const DeviceMesh& mesh);
  static at::Tensor only_output(std::vector<at::Tensor> outputs);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Makes an engine; every rank must call it.
/// `module`: a holder (`Net net;`) or a shared_ptr; its forward takes up to 8 tensors, or a vector
/// of tensors, and returns a tensor, or a vector or tuple of them (forward_list). `config_file`:
/// the path of a configuration file. `ranks`: a Group, or the DeviceMesh of a module whose layers
/// are divided over ranks (train/setup/model_mesh.h).
template <class Holder, class Ranks>
Engine initialize(Holder module, const Config& config, const Ranks& ranks) {
  auto forward = [module](const std::vector<at::Tensor>& inputs) mutable {
    return detail::call_forward(module, inputs);
  };
  if constexpr (requires { module.ptr(); })
    return Engine(module.ptr(), std::move(forward), config, ranks);
  else
    return Engine(module, std::move(forward), config, ranks);
}
template <class Holder, class Ranks>
Engine initialize(Holder module, const std::string& config_file, const Ranks& ranks) {
  return initialize(std::move(module), Config::load(ConfigInputs::from({config_file})), ranks);
}

}  // namespace trireme
