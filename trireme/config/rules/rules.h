// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/config/rules/derived.h"
#include "trireme/config/rules/findings.h"

namespace trireme {

/// What keys mean together: values that exclude each other, and values without effect beside
/// others. A rule looks at the keys that are right by themselves.
using Rule = void (*)(const Config& config, Findings& findings);
/// In the order in which they run: of two complaints about one key the later one is told.
const std::vector<Rule>& all_rules();

/// Defaults that follow from other values; before the rules.
void derive_values(const Config& config, Derived& derived);
void derive_zero(const Config& config, const Findings& findings, Derived& derived);

void training_rules(const Config&, Findings&);
void data_rules(const Config&, Findings&);
void optimizer_rules(const Config&, Findings&);
void scheduler_rules(const Config&, Findings&);
void precision_rules(const Config&, Findings&);
void recompute_rules(const Config&, Findings&);
void balance_rules(const Config&, Findings&);
void data_efficiency_rules(const Config&, Findings&);
void held_out_rules(const Config&, Findings&);
void checkpoint_rules(const Config&, Findings&);
void zero_rules(const Config&, Findings&);
void offload_rules(const Config&, Findings&);
void slow_link_rules(const Config&, Findings&);

/// Where DeepSpeed's meaning surprises those who come from elsewhere.
std::vector<std::string> deepspeed_surprises(const Config& config);

}  // namespace trireme
