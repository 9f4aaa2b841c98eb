// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/nn/module.h>

#include "trireme/base/check.h"
#include "trireme/train/program/piece.h"

namespace trireme {
namespace {

/// Registers a TorchScript module's parameters and buffers as LibTorch's own modules do.
struct ScriptPart : torch::nn::Module {
  explicit ScriptPart(const torch::jit::Module& script) {
    for (const auto& p : script.named_parameters(/*recurse=*/false))
      register_parameter(p.name, p.value, p.value.requires_grad());
    for (const auto& b : script.named_buffers(/*recurse=*/false)) register_buffer(b.name, b.value);
    for (const auto& child : script.named_children())
      register_module(child.name, std::make_shared<ScriptPart>(child.value));
  }
};

struct ScriptModule final : ScriptPart {
  explicit ScriptModule(torch::jit::Module m) : ScriptPart(m), script(std::move(m)) {}
  void train(bool on) override {
    ScriptPart::train(on);
    script.train(on);
  }
  torch::jit::Module script;
};

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  std::vector<at::Tensor> all;
  if (value.isTuple())
    for (const auto& part : value.toTupleRef().elements())
      for (at::Tensor& t : tensors_of(part)) all.push_back(std::move(t));
  check<UsageError>(!all.empty(),
                    "a TorchScript module returned {}: its forward must return a tensor, or a "
                    "tuple or list of them",
                    value.tagKind());
  return all;
}

}  // namespace

Piece script_piece(std::string path, std::string file, double cost) {
  return {std::move(path),
          [file = std::move(file)]() -> Piece::Made {
            std::shared_ptr<ScriptModule> module;
            try {
              module = std::make_shared<ScriptModule>(torch::jit::load(file));
            } catch (const c10::Error& e) {
              fail<UsageError>("{} is not a TorchScript module: {}", file,
                               e.what_without_backtrace());
            }
            return {module, [module](const std::vector<at::Tensor>& inputs) {
                      return tensors_of(module->script.forward({inputs.begin(), inputs.end()}));
                    }};
          },
          cost};
}

}  // namespace trireme
