// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/autograd/context.h"

#include "trireme/base/check.h"
#include "trireme/rpc/autograd/backward.h"
#include "trireme/rpc/autograd/contexts.h"

namespace trireme::rpc::autograd {
namespace {

std::shared_ptr<Contexts> contexts_of(const Worker& me) {
  auto contexts = std::dynamic_pointer_cast<Contexts>(rpc::detail::Access::carrier(me));
  check<UsageError>(
      contexts != nullptr,
      "worker '{}' takes no part in contexts: add rpc::autograd::offer() to the offers "
      "of its rpc::Options",
      me.name());
  return contexts;
}

}  // namespace

Offer offer() {
  auto contexts = std::make_shared<Contexts>();
  Offer offer = rpc::offer<LookBehind, RunPasses, GradientsCame, GiveUp, ContextEnded>(contexts);
  for (auto& method : offer.methods)
    // A backward waits for these, perhaps with all threads that there are.
    method.at_once = method.name == GradientsCame::kName || method.name == GiveUp::kName;
  offer.carrier = std::move(contexts);
  return offer;
}

struct Context::State {
  explicit State(const Worker& worker)
      : me(worker), contexts(contexts_of(worker)), context(contexts->begin()), scope(context) {}
  ~State() { contexts->end(context->id()); }

  const Worker me;
  const std::shared_ptr<Contexts> contexts;
  const std::shared_ptr<LocalContext> context;
  const rpc::detail::ContextScope scope;
};

Context::Context(const Worker& me) : state_(std::make_unique<State>(me)) {}
Context::~Context() = default;

const ContextId& Context::id() const { return state_->context->id(); }

void Context::backward(const std::vector<at::Tensor>& losses, const BackwardOptions& options) {
  const Duration deadline = options.deadline == Duration::min()
                                ? rpc::detail::Access::deadline(state_->me)
                                : options.deadline;
  run_backward(state_->me, *state_->contexts, state_->context, losses,
               {options.retain_graph, options.accumulate}, Deadline::after(deadline));
}

Gradients Context::gradients() const { return state_->context->gradients(); }

at::Tensor Context::gradient(const at::Tensor& parameter) const {
  return state_->context->gradient(parameter);
}

struct Context::Within::State {
  const rpc::detail::ContextScope scope;
};

Context::Within::Within(const Context& context)
    : state_(new State{rpc::detail::ContextScope(context.state_->context)}) {}
Context::Within::~Within() = default;

std::optional<ContextId> current() {
  const auto* context = dynamic_cast<LocalContext*>(rpc::detail::current_context().get());
  if (!context) return {};
  return context->id();
}

Gradients gradients(const Worker& me, const ContextId& id) {
  return contexts_of(me)->find(id)->gradients();
}

int64_t contexts(const Worker& me) { return contexts_of(me)->count(); }

}  // namespace trireme::rpc::autograd
