// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/comm/group.h"
#include "trireme/train/precision/precision.h"
#include "trireme/train/run.h"

namespace trireme {

/// For a run that computes in bfloat16 on the CPU: rank 0 measures how fast this processor
/// multiplies (a tenth of a second; some more where it has no instructions for it), and all ranks
/// compute the built-in layers' products in the faster way, which is then part of the run's
/// identity. Where that is the processor's own, attention is measured as a whole and chosen too
/// (layers/half_attention.h); elsewhere it is in float32. Returns what the run says of it before
/// step 1; "" for other runs. Every rank must call it, after run.identity is set.
std::string set_up_half_products(Run& run, const PrecisionPlan& plan, Group group);

/// For a run that continues one of this identity: computes products and attention in the ways that
/// the identity names, which a measurement beside other work might have chosen otherwise. Its own
/// ways stay where this processor would take more than twice as long or where its sums are rounded:
/// run.identity then differs from `saved`. Every rank must call it, with the same `saved`.
void follow_half_products(Run& run, const std::string& saved);

}  // namespace trireme
