// SPDX-License-Identifier: Apache-2.0
#include <c10/util/accumulate.h>

#include "trireme/config/sections/parallelism.h"
#include "trireme/planner/model_shape.h"
#include "trireme/tensor/parameter_layout.h"
#include "trireme/tensor/tied_tensors.h"
#include "trireme/train/program/program_keys.h"
#include "trireme/train/program/program_model.h"
#include "trireme/train/program/program_stages.h"
#include "trireme/train/setup/model_mesh.h"
#include "trireme/train/train_main.h"

namespace trireme {
namespace {

std::vector<Piece> pieces_of(Program& program, const Config& config) {
  if (config.section<ParallelismSection>().tp == 1) return program.make(config);
  return program.make_divided(config, imagined_tensor_parallel(config));
}

/// Describes the pieces to the planner: each is a module and a unit of its own.
ModelShape shape_of(const std::vector<Piece>& pieces) {
  check_pieces(pieces);
  ModelShape shape;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto module = pieces[i].make().module;
    ModuleShape row{pieces[i].path, module->name(), 0, pieces[i].cost};
    const auto layouts = layouts_of(*module);
    for (const auto& [name, p] : named_parameters(*module)) {
      const int unit = static_cast<int>(i) + 1;
      const std::string path = pieces[i].path + "." + name;
      shape.parameters.push_back({path, layouts.at(name).shape, unit});
      shape.of_a_rank.push_back({path, p.sizes().vec(), unit});
      row.parameters += c10::multiply_integers(shape.parameters.back().shape);
    }
    shape.modules.push_back(std::move(row));
  }
  return shape;
}

}  // namespace

MainProgram main_program(std::function<std::unique_ptr<Program>()> make) {
  KeyTable keys = KeyTable::built_in_copy();
  make()->keys(keys);
  const auto table = std::make_shared<const KeyTable>(std::move(keys));
  MainProgram main;
  main.load = [table](const ConfigInputs& inputs) {
    Config config = Config::load(inputs, table);
    check_no_built_in_keys(config);  // before ranks start
    return config;
  };
  main.load_resolved = [table](std::string_view text) { return load_resolved(text, table); };
  main.shape = [make](const Config& config) { return shape_of(pieces_of(*make(), config)); };
  main.fault = [make](const Config& config, int ranks) {
    const auto parallelism = config.section<ParallelismSection>();
    if (parallelism.pp * parallelism.tp == 1) return std::string();
    const std::unique_ptr<Program> program = make();
    const std::vector<Piece> pieces = pieces_of(*program, config);
    check_pieces(pieces);
    return fault_of_axes(*program, config, pieces, ranks);
  };
  main.train = [make](const Config& config, Group group, const TrainOptions& options) {
    const std::unique_ptr<Program> program = make();
    return train(*program, config, std::move(group), options);
  };
  return main;
}

}  // namespace trireme
