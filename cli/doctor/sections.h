// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cli/doctor/report.h"
#include "trireme/launch/job_plan.h"

// One function a section; each reads or measures, and leaves the judgement to advice.h.
namespace trireme::doctor {

struct Options {
  bool quick = false;  // measures nothing
  std::string master;  // host[:port]; "": MASTER_ADDR
  int ranks = 0;       // that 'run' would start; 0: one a core
};

Section versions();
Section processors(const launch::Machine& machine, const Options& options);
Section blas(const launch::Machine& machine, const Options& options);
Section memory(const launch::Machine& machine, const Options& options);
Section limits();
Section kernel();
Section network(const Options& options);

/// One row: what bfloat16 does on this CPU. `coretype` as for OPENBLAS_CORETYPE; "": as it is.
void say_bfloat16(Section* s, const std::string& coretype);

/// All of them.
Report examine(const Options& options);

/// GFLOP/s of multiply-adds of float32 that one core of this CPU does with AVX2 or AVX-512, in a
/// loop that touches no memory; 0: not known for this CPU.
struct FmaPeak {
  double avx2 = 0, avx512 = 0;
  double best() const { return avx512 > avx2 ? avx512 : avx2; }
};
FmaPeak measure_fma_peak();

/// GB/s, reads and writes counted, of copies by one thread on each of `cpus`.
double copy_bandwidth(const std::vector<int>& cpus, size_t bytes_each);

}  // namespace trireme::doctor
