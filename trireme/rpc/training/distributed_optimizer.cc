// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/training/distributed_optimizer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <set>

#include "trireme/base/check.h"
#include "trireme/rpc/training/optimizer_host.h"
#include "trireme/rpc/training/owned_optimizer.h"

namespace trireme::rpc {
namespace {

/// What they come to, in their order. The first error is thrown once all are there.
template <class T>
std::vector<T> all_of(std::vector<Future<T>> futures) {
  std::vector<T> results;
  std::exception_ptr first;
  for (auto& future : futures) {
    try {
      results.push_back(future.get());
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
  return results;
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(const Worker& me, const std::vector<std::string>& owners,
                                           PeerOptions options) {
  check<UsageError>(!owners.empty(), "a DistributedOptimizer needs workers that own parameters");
  std::set<std::string> names;
  for (const std::string& name : owners) {
    check<UsageError>(names.insert(name).second,
                      "a DistributedOptimizer is given worker '{}' twice", name);
    const Peer owner = me.peer(name, options);
    check<UsageError>(
        detail::Access::line(owner)->offers(detail::OptimizerStep::kName),
        "worker '{}' has no optimizer: let it offer an rpc::OwnedOptimizer of its parameters",
        name);
    parts_.push_back({[owner] { return owner.async<detail::OptimizerNorm>(); },
                      [owner](double lr, double grad_scale) {
                        return owner.async<detail::OptimizerStep>(lr, grad_scale);
                      }});
  }
}

DistributedOptimizer::DistributedOptimizer(const Worker& me, const std::string& optimizer,
                                           const std::vector<RRef<at::Tensor>>& parameters,
                                           double lr, PeerOptions options)
    : lr_(lr) {
  check<UsageError>(!parameters.empty(), "a DistributedOptimizer needs parameters");
  std::map<std::string, std::vector<RRef<at::Tensor>>> of_owners;
  for (const auto& parameter : parameters) of_owners[parameter.owner()].push_back(parameter);
  for (const auto& [owner, own] : of_owners)
    parts_.push_back(detail::make_optimizer_at(me.peer(owner, options), optimizer, own));
}

StepDone DistributedOptimizer::step(const autograd::Context& context) const {
  check<UsageError>(lr_.has_value(),
                    "this DistributedOptimizer was given no lr: pass StepOptions to step()");
  return step(context, {.lr = *lr_});
}

StepDone DistributedOptimizer::step(const autograd::Context& context,
                                    const StepOptions& options) const {
  check<UsageError>(
      std::isfinite(options.lr) && std::isfinite(options.grad_scale) && options.max_norm >= 0,
      "a step has lr {}, grad_scale {} and max_norm {}", options.lr, options.grad_scale,
      options.max_norm);
  const autograd::Context::Within within(context);
  StepDone done;
  if (options.max_norm > 0) {
    std::vector<Future<double>> norms;
    for (const auto& part : parts_) norms.push_back(part.norm());
    double squares = 0;
    for (const double norm : all_of(std::move(norms))) squares += norm * norm;
    done.norm = std::sqrt(squares) * std::abs(options.grad_scale);
    check<NumericError>(std::isfinite(done.norm),
                        "the norm of the gradients of all owners is {}: no worker has stepped",
                        done.norm);
    done.coefficient = std::min(1.0, options.max_norm / (done.norm + 1e-6));
  }
  std::vector<Future<int64_t>> steps;
  for (const auto& part : parts_)
    steps.push_back(part.step(options.lr, options.grad_scale * done.coefficient));
  all_of(std::move(steps));
  return done;
}

}  // namespace trireme::rpc
