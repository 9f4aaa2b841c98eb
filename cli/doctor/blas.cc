// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include "cli/cpu_load.h"
#include "cli/doctor/advice.h"
#include "cli/doctor/sections.h"
#include "trireme/base/clock.h"
#include "trireme/launch/machine/blas_probe.h"

namespace trireme::doctor {

Section blas(const launch::Machine& machine, const Options& options) {
  Section s("blas");
  const launch::BlasProbe probe = launch::probe_openblas();
  s.json = {{"library", probe.library}, {"config", probe.config}};
  if (probe.library.empty()) {
    s.row("library", "no OpenBLAS");
    s.find("no OpenBLAS found: LibTorch computes several times slower",
           "apt-get install libopenblas0-pthread");
    return s;
  }
  BlasRates rates;
  rates.user = launch::process_env("OPENBLAS_CORETYPE").value_or("");
  rates.by_run = launch::choose_coretype(machine.model, machine.blas_corename);
  s.row("library", fmt::format("{}: {}", probe.library, probe.config));
  s.json["OPENBLAS_CORETYPE"] = rates.user;
  s.json["run_sets_coretype"] = rates.by_run;
  if (options.quick) {
    s.row("kernels", probe.corename + (rates.by_run.empty() ? "" : "; run sets " + rates.by_run));
    return s;
  }
  const auto begin = Clock::now();
  const auto own = [] { return own_cpu_seconds() + own_cpu_seconds(RUSAGE_CHILDREN); };
  const double machine_before = machine_cpu_seconds(), own_before = own();
  std::vector<std::string> choices{""};
  if (!rates.user.empty()) choices.push_back(rates.user);
  if (machine.model.has("avx2") && rates.user != "Haswell") choices.push_back("Haswell");
  if (machine.model.has("avx512vl") && rates.user != "SkylakeX") choices.push_back("SkylakeX");
  for (const auto& choice : choices) {
    const auto measured = launch::probe_openblas({choice, true});
    rates.rates.push_back({choice, measured.corename, measured.gflops});
  }
  const FmaPeak peak = measure_fma_peak();
  rates.peak = peak.best();
  rates.foreign =
      foreign_load(seconds_since(begin), static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)),
                   machine_cpu_seconds() - machine_before, own() - own_before);
  ordered_json list = ordered_json::array();
  for (const auto& rate : rates.rates) {
    list.push_back({{"OPENBLAS_CORETYPE", rate.coretype},
                    {"corename", rate.corename},
                    {"gflops", rate.gflops}});
    s.row(rate.coretype.empty() ? "core type unset" : rate.coretype,
          fmt::format(
              "{:<14} {}{}{}", rate.corename,
              rate.gflops > 0 ? fmt::format("{:.0f} GFLOP/s", rate.gflops) : "does not run here",
              rates.peak > 0 && rate.gflops > 0
                  ? fmt::format(", {:.0f} % of the core", 100 * rate.gflops / rates.peak)
                  : "",
              rate.coretype == rates.user ? "   <- now" : ""));
  }
  if (rates.peak > 0)
    s.row("one core", fmt::format("{:.0f} GFLOP/s of multiply-adds (float32, {})", rates.peak,
                                  peak.avx512 >= peak.avx2 ? "AVX-512" : "AVX2"));
  say_bfloat16(&s, rates.user.empty() ? rates.by_run : "");
  s.json["sgemm_1024_one_thread"] = list;
  s.json["fma_gflops"] = {{"avx2", peak.avx2}, {"avx512", peak.avx512}};
  s.json["foreign_load"] = rates.foreign;
  s.json["remedy"] = rates.remedy();
  s.findings = advise(rates);
  return s;
}

}  // namespace trireme::doctor
