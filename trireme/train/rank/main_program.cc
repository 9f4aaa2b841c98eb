// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/trainer_impl.h"
#include "trireme/train/train_main.h"

namespace trireme {

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
  main.train = [make](const Config& config, Group group, const TrainOptions& options) {
    const std::unique_ptr<Program> program = make();
    return train(*program, config, std::move(group), options);
  };
  return main;
}

}  // namespace trireme
