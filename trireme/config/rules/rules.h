// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/config/rules/derived.h"
#include "trireme/config/rules/findings.h"

namespace trireme {

/// Rules about combinations of keys: values that exclude each other, and values without effect
/// beside others. A rule looks at keys whose own values are valid.
using Rule = void (*)(const Config& config, Findings& findings);
/// Returns the rules in the order in which they run; of two complaints about one key the later is
/// reported.
const std::vector<Rule>& all_rules();

/// Set defaults that follow from other values. They run before the rules.
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
void parallelism_rules(const Config&, Findings&);
void elastic_rules(const Config&, Findings&);

/// Returns notes on where DeepSpeed's semantics may surprise users of other frameworks.
std::vector<std::string> deepspeed_surprises(const Config& config);

}  // namespace trireme
