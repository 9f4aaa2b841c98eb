// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/layer_watch.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <fmt/core.h>

#include <map>
#include <mutex>
#include <unordered_map>

namespace trireme {

// Autograd numbers its nodes in the order of the forward, so that a node's number says which layer
// made it.
struct LayerWatch::State {
  std::unordered_map<const c10::TensorImpl*, std::string> layers;  // by parameter
  mutable std::mutex mutex;              // backward of a device is on another thread
  std::map<uint64_t, std::string> from;  // number of a node → the layer from there on
  std::string now;
  bool backward = false;

  void take(const c10::IValue& input) {
    if (!input.isTensor()) return;
    const auto found = layers.find(input.toTensor().unsafeGetTensorImpl());
    if (found == layers.end()) return;
    const std::lock_guard lock(mutex);
    now = found->second;
    backward = false;
    // The node of a function of one's own is numbered before its forward, which needs no gradient.
    const uint64_t next = at::sequence_number::peek();
    from[at::GradMode::is_enabled() || next == 0 ? next : next - 1] = now;
  }
  void go_back_to(int64_t node) {
    const std::lock_guard lock(mutex);
    backward = true;
    const auto after = from.upper_bound(static_cast<uint64_t>(node));
    if (node >= 0 && after != from.begin()) now = std::prev(after)->second;
  }
};

namespace {

// What fn.inputs() returns, without its check of a byte that a LibTorch compiled with NDEBUG never
// sets: naming a member to instantiate a template is allowed whoever may access it.
c10::ArrayRef<const c10::IValue> inputs_of(const at::RecordFunction& fn);
template <auto member>
struct Inputs {
  friend c10::ArrayRef<const c10::IValue> inputs_of(const at::RecordFunction& fn) {
    return fn.*member;
  }
};
template struct Inputs<&at::RecordFunction::inputs_>;

// LibTorch's callbacks are functions without an object: they find theirs by the forward's thread.
struct Watches {
  std::mutex mutex;
  std::map<uint64_t, void*> by_thread;
};

Watches& watches() {
  static auto* const all = new Watches;  // threads of LibTorch may outlive static objects
  return *all;
}

void* watch_of(uint64_t thread) {
  const std::lock_guard lock(watches().mutex);
  const auto found = watches().by_thread.find(thread);
  return found == watches().by_thread.end() ? nullptr : found->second;
}

std::string layer_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

}  // namespace

LayerWatch::LayerWatch(const NamedTensors& parameters) : state_(std::make_unique<State>()) {
  for (const auto& [name, p] : parameters)
    state_->layers.emplace(p.unsafeGetTensorImpl(), layer_of(name));
}

LayerWatch::~LayerWatch() = default;

LayerWatch::Scope::Scope(LayerWatch& watch) : thread_(at::RecordFunction::currentThreadId()) {
  {
    const std::lock_guard lock(watches().mutex);
    watches().by_thread[thread_] = watch.state_.get();
  }
  const auto see = [](const at::RecordFunction& fn) -> std::unique_ptr<at::ObserverContext> {
    if (fn.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      if (auto* state = static_cast<State*>(watch_of(fn.forwardThreadId())))
        state->go_back_to(fn.seqNr());
    } else if (auto* state = static_cast<State*>(watch_of(fn.threadId()))) {
      for (const c10::IValue& input : inputs_of(fn)) state->take(input);
    }
    return nullptr;
  };
  callback_ = at::addThreadLocalCallback(at::RecordFunctionCallback(see).needsInputs(true).scopes(
      {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

LayerWatch::Scope::~Scope() {
  at::removeCallback(callback_);
  const std::lock_guard lock(watches().mutex);
  watches().by_thread.erase(thread_);
}

std::string LayerWatch::where() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->now.empty()) return "the model";
  return fmt::format("{}layer '{}'", state_->backward ? "the backward of " : "", state_->now);
}

}  // namespace trireme
