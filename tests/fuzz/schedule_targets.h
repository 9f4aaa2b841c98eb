// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/pipeline/schedule/check.h"
#include "trireme/pipeline/schedule/csv.h"

// Tables of schedules, which people copy from elsewhere.
namespace trireme::fuzz {

inline void schedule_table(std::string_view bytes) {
  pipeline::Schedule schedule;
  try {
    schedule = pipeline::read_table(bytes, "table.csv");
  } catch (const UsageError&) {
    return;
  }
  const std::string text = pipeline::write_table(schedule);
  if (pipeline::write_table(pipeline::read_table(text, "again.csv")) != text)
    throw std::logic_error("a table is written otherwise than it is read");
  pipeline::check_schedule(schedule);  // however broken it is
}

}  // namespace trireme::fuzz
