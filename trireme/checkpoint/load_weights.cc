// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load_weights.h"

#include "trireme/base/check.h"

namespace trireme {

CheckpointInfo load_weights(const std::string& path, const StateWalk& walk, const Group& group,
                            const WeightOptions& options) {
  LoadOptions load;
  load.prefix = "model.";
  load.tied = options.tied;
  load.except = options.except;
  load.convert = true;
  load.python_files = true;
  if (group) load.group = group;
  for (const std::string& rule : options.map) {
    const size_t equals = rule.find('=');
    check<UsageError>(equals != std::string::npos && rule.find('=', equals + 1) == rule.npos,
                      "load_weights: '{}' is no map of names: write old.prefix=new.prefix", rule);
    load.renamed.push_back(
        {load.prefix + rule.substr(0, equals), load.prefix + rule.substr(equals + 1)});
  }
  return load_step(path, walk, load);
}

}  // namespace trireme
