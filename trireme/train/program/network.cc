// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/network.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include "trireme/base/check.h"
#include "trireme/train/program/trainer_impl.h"

namespace trireme {
namespace {

const Network::Impl::Place& place_of(const Network::Impl& impl, const std::string& path) {
  const auto found = impl.places.find(path);
  if (found != impl.places.end()) return found->second;
  fail<UsageError>("there is no piece '{}'{}: {} {}", path, impl.divided ? " on this rank" : "",
                   impl.divided ? "it has" : "Program::make() made", fmt::join(impl.paths, ", "));
}

}  // namespace

std::vector<at::Tensor> Network::run_list(const std::string& path,
                                          const std::vector<at::Tensor>& inputs) {
  const Impl::Place& place = place_of(impl_, path);
  ProgramModel& model = *place.model;
  // A piece of another update has whole parameters, which are constants.
  if (model.is_open() || impl_.training || !place.run) return model.run(place.piece, inputs);
  check<UsageError>(!at::GradMode::is_enabled(),
                    "piece '{}' was run outside of a loss with gradients switched on: put "
                    "at::NoGradGuard around it, or train with Trainer::update()",
                    path);
  return model.within(*place.run->compute, [&] { return model.run(place.piece, inputs); });
}

const std::vector<std::string>& Network::paths() const { return impl_.paths; }

torch::nn::Module& Network::module(const std::string& path) {
  const Impl::Place& place = place_of(impl_, path);
  return place.model->module(place.piece);
}

at::Tensor Network::only(const std::string& path, std::vector<at::Tensor> outputs) {
  check<UsageError>(outputs.size() == 1, "piece '{}' returned {} tensors: call run_list()", path,
                    outputs.size());
  return std::move(outputs[0]);
}

}  // namespace trireme
