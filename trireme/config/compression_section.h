// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/config.h"

namespace trireme {

/// The section "compression" as the options of who asks (grad/compression/compression.h, or the
/// memory plan's planner/exchange_memory.h, which know nothing of each other): what they have a
/// member for and the type of codec looks at; the rest stays.
template <class Options>
Options read_compression(const Config& c) {
  Options o;
  o.type = c.get_string("compression.type");
  auto given = [&](const char* path) { return c.applies(path); };
  if (given("compression.block")) o.block = c.get_int("compression.block");
  if (given("compression.density")) o.density = c.get_double("compression.density");
  if (given("compression.rank")) o.rank = c.get_int("compression.rank");
  if (given("compression.error_feedback"))
    o.error_feedback = c.get_bool("compression.error_feedback");
  if constexpr (requires { o.start_step; }) {
    if (given("compression.start_step")) o.start_step = c.get_int("compression.start_step");
    if (given("compression.max_residual"))
      o.max_residual = c.get_double("compression.max_residual");
    if (given("compression.decide_every")) o.decide_every = c.get_int("compression.decide_every");
    if (given("compression.warm_start")) o.warm_start = c.get_bool("compression.warm_start");
  }
  return o;
}

}  // namespace trireme
