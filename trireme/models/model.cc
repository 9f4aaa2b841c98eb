// SPDX-License-Identifier: Apache-2.0
#include "trireme/models/model.h"

#include "trireme/base/check.h"
#include "trireme/models/convnet.h"
#include "trireme/models/gpt.h"
#include "trireme/models/mlp.h"
#include "trireme/models/net.h"

namespace trireme {

Model::~Model() = default;

std::vector<at::Tensor> Model::forward_list(const std::vector<at::Tensor>& inputs) {
  check<UsageError>(inputs.size() == 1, "{} takes one input, not {}", name(), inputs.size());
  return {forward(inputs[0])};
}

at::Tensor Model::count_right(const at::Tensor& output, const at::Tensor& target) {
  return output.argmax(-1).eq(target).sum();
}

void Model::select_stage(size_t) {
  fail<UsageError>("{} cannot be divided into stages of a pipeline", name());
}

void Model::set_recompute(std::vector<bool> recompute) {
  check<UsageError>(recompute.empty(),
                    "{} has no blocks that could be computed again in backward: it keeps its "
                    "activations",
                    name());
}

std::shared_ptr<Model> make_model(const ModelOptions& options, uint64_t seed) {
  if (options.type == "mlp")
    return std::make_shared<Mlp>(options.mlp_sizes, seed, options.unit_made);
  if (options.type == "net") return std::make_shared<Net>(seed);
  if (options.type == "convnet") return std::make_shared<ConvNet>(seed);
  if (options.type == "gpt") return std::make_shared<Gpt>(options.gpt, seed, options.unit_made);
  fail<UsageError>("there is no model of type '{}': choose mlp, net, convnet or gpt", options.type);
}

}  // namespace trireme
