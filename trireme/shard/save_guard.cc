// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/save_guard.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <ostream>
#include <vector>

#include "trireme/base/check.h"

namespace trireme {
namespace {

constexpr const char* kName = "sharded_parameters";

class SaveGuard final : public torch::nn::Module {
 public:
  explicit SaveGuard(std::vector<at::Tensor> parameters)
      : torch::nn::Module(kName), parameters_(std::move(parameters)) {}

  bool is_serializable() const noexcept override {
    return std::any_of(parameters_.begin(), parameters_.end(), [](const at::Tensor& p) {
      return p.numel() > 0 && p.storage().data() == nullptr;
    });
  }
  void save(torch::serialize::OutputArchive&) const override { refuse("torch::save"); }
  void load(torch::serialize::InputArchive&) override { refuse("torch::load"); }
  void pretty_print(std::ostream& stream) const override {
    stream << "parameters split over ranks";
  }

 private:
  [[noreturn]] static void refuse(const char* call) {
    fail<UsageError>(
        "{}: the module's parameters are split over ranks (FullySharded), and this rank does not "
        "hold them. On every rank make a FullySharded::Gathered, in which they are whole; while it "
        "lives, save on one rank",
        call);
  }
  std::vector<at::Tensor> parameters_;
};

}  // namespace

void guard_saving(torch::nn::Module& module) {
  if (module.named_children().contains(kName)) return;
  module.register_module(kName, std::make_shared<SaveGuard>(module.parameters()));
}

}  // namespace trireme
