// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/sections.h"

namespace trireme::doctor {

Report examine(const Options& options) {
  const launch::Machine machine = launch::read_machine();
  Report report;
  report.sections.push_back(versions());
  report.sections.push_back(processors(machine, options));
  report.sections.push_back(blas(machine, options));
  report.sections.push_back(memory(machine, options));
  report.sections.push_back(limits());
  report.sections.push_back(kernel());
  report.sections.push_back(network(options));
  return report;
}

}  // namespace trireme::doctor
