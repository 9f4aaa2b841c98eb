// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/rules/rules.h"

namespace trireme {

const std::vector<Rule>& all_rules() {
  static const std::vector<Rule> rules = {
      training_rules,  data_rules,    optimizer_rules,       scheduler_rules,   precision_rules,
      recompute_rules, balance_rules, data_efficiency_rules, held_out_rules,    checkpoint_rules,
      zero_rules,      offload_rules, slow_link_rules,       parallelism_rules, elastic_rules,
  };
  return rules;
}

}  // namespace trireme
