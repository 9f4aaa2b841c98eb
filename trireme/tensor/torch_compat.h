// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/api/include/torch/version.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

// Where LibTorch 1.13 and 2.x differ under us. Nothing else in the tree asks for a version, but for
// autocast_compat.h and attention_compat.h, which are parts of this file.
#define TRIREME_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||          \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace trireme::compat {

/// From 2.0 autograd::grad() calls the hooks of a leaf tensor (Tensor::register_hook) too.
constexpr bool kGradCallsLeafHooks = TRIREME_TORCH_AT_LEAST(2, 0);

/// shared_ptr<Node> up to 2.12, intrusive_ptr from 2.13: never spelt out.
using NodePtr = std::decay_t<decltype(torch::autograd::impl::grad_accumulator(
    std::declval<const at::Tensor&>()))>;

/// Calls f after each accumulation into p.grad(); not where a node gave p no gradient. The tensor
/// holds its accumulator weakly: without this object the hook never fires. Destroying it removes
/// the hook.
class GradHook {
 public:
  GradHook() = default;
  GradHook(const at::Tensor& p, std::function<void()> f)
      : node_(torch::autograd::impl::grad_accumulator(p)) {
    using torch::autograd::variable_list;
    key_ = node_->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [f = std::move(f)](const variable_list& outputs, const variable_list& gradients) {
          if (gradients[0].defined()) f();
          return outputs;
        }));
  }
  GradHook(GradHook&& o) noexcept : node_(std::move(o.node_)), key_(o.key_) { o.node_ = NodePtr(); }
  GradHook& operator=(GradHook&&) = delete;
  ~GradHook() {
    if (node_) node_->del_post_hook(key_);
  }
  /// The hook lies on the accumulator that p has now.
  bool is_on(const at::Tensor& p) const {
    return torch::autograd::impl::try_get_grad_accumulator(p).get() == node_.get();
  }

 private:
  NodePtr node_;
  uintptr_t key_ = 0;
};

/// Inside a backward: it is one of a part of the graph (autograd::grad(), backward() with inputs, a
/// half of a SplitBackward), not of all that there is.
inline bool backward_is_of_a_part() {
  const auto* only = torch::autograd::get_current_graph_task_exec_info();
  return only && !only->empty();
}

/// Calls f before each accumulation into p.grad(). It lies on the tensor, and stays there when
/// set_data() (torch::load(), Module::to()) takes the accumulator with its hooks away. Destroying
/// it removes the hook. p requires a gradient as it is made.
class TensorHook {
 public:
  TensorHook(const at::Tensor& p, std::function<void()> f)
      : p_(p), key_(p.register_hook([f = std::move(f)](const at::Tensor& gradient) {
          if (gradient.defined() && !grad_asks()) f();
        })) {}
  TensorHook(TensorHook&&) noexcept = default;
  TensorHook& operator=(TensorHook&&) = delete;
  ~TensorHook() {
    if (!p_.defined()) return;
    try {
      p_.remove_hook(key_);
    } catch (const c10::Error&) {  // somebody has cleared all of its hooks
    }
  }

 private:
  // From 2.0 autograd::grad(), which accumulates nothing, calls the hooks of a leaf too.
  static bool grad_asks() { return kGradCallsLeafHooks && backward_is_of_a_part(); }
  at::Tensor p_;
  unsigned key_ = 0;
};

/// Where a torch::optim optimizer keeps its state of p: under p's address, up to 2.0 as digits.
template <class States>
typename States::key_type optimizer_key(const at::Tensor& p) {
  void* const address = p.unsafeGetTensorImpl();
  if constexpr (std::is_same_v<typename States::key_type, std::string>) {
    std::ostringstream text;
    text << address;
    return text.str();
  } else {
    return address;
  }
}

/// f runs at the end of the backward that is under way; legal only inside one (from a hook).
inline void on_backward_end(std::function<void()> f) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(f));
}

}  // namespace trireme::compat
