// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/utsname.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/sgemm_rate.h"
#include "cli/verbs.h"
#include "cli/worker_start.h"
#include "trireme/launch/blas_probe.h"
#include "trireme/launch/job_plan.h"

namespace trireme {
namespace {

using nlohmann::ordered_json;

const char kHelp[] = R"(What this machine offers, and what 'trireme run' would make of it.

Usage: trireme doctor [--json FILE]

Measures one thread's matrix product under each kernel set of OpenBLAS (about 2 s), and prints the line that mends a
bad choice.

Examples:
  trireme doctor
  trireme doctor --json -
)";

constexpr double kWorthSaying = 1.3;

struct Blas {
  launch::BlasProbe probe;
  std::string user;    // OPENBLAS_CORETYPE as it is
  std::string by_run;  // what trireme run sets
  ordered_json rates = ordered_json::array();
  std::string remedy;  // a line for the shell; "" where nothing is gained
  double gain = 1;
};

Blas examine_blas(const launch::Machine& machine) {
  Blas blas;
  blas.probe = launch::probe_openblas();
  if (blas.probe.library.empty()) return blas;
  blas.user = launch::process_env("OPENBLAS_CORETYPE").value_or("");
  blas.by_run = launch::choose_coretype(machine.model, machine.blas_corename);
  std::vector<std::string> choices{""};
  if (!blas.user.empty()) choices.push_back(blas.user);
  if (machine.model.has("avx2") && blas.user != "Haswell") choices.push_back("Haswell");
  if (machine.model.has("avx512vl") && blas.user != "SkylakeX") choices.push_back("SkylakeX");
  double now = 0, best = 0;
  std::string best_choice;
  for (const auto& choice : choices) {
    SgemmRate rate = measure_sgemm(choice);
    blas.rates.push_back(
        {{"OPENBLAS_CORETYPE", choice}, {"corename", rate.corename}, {"gflops", rate.gflops}});
    if (choice == blas.user) now = rate.gflops;
    if (rate.gflops > best) {
      best = rate.gflops;
      best_choice = choice;
    }
  }
  if (now > 0 && best >= kWorthSaying * now) {
    blas.gain = best / now;
    blas.remedy =
        best_choice.empty() ? "unset OPENBLAS_CORETYPE" : "export OPENBLAS_CORETYPE=" + best_choice;
  }
  return blas;
}

std::string text_of_list(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size(); ++i) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ",";
    text += std::to_string(cpus[i]);
    if (last > i) text += "-" + std::to_string(cpus[last]);
    i = last;
  }
  return text;
}

ordered_json describe(const launch::Machine& machine, const Blas& blas) {
  utsname system{};
  ::uname(&system);
  std::set<std::pair<int, int>> cores;
  std::vector<int> ids;
  for (const auto& cpu : machine.cpus) {
    cores.insert({cpu.package, cpu.core});
    ids.push_back(cpu.id);
  }
  int ranks = static_cast<int>(cores.size());
  auto plan = launch::plan_cpus(machine.cpus, machine.quota, ranks, {});
  ordered_json ranks_cpus = ordered_json::array();
  for (const auto& list : plan.cpus) ranks_cpus.push_back(text_of_list(list));
  ordered_json json{{"trireme", TRIREME_VERSION},
                    {"compiler", TRIREME_COMPILER},
                    {"worker", find_worker_program()},
                    {"kernel", fmt::format("{} {}", system.sysname, system.release)},
                    {"cpu", machine.model.name},
                    {"avx2", machine.model.has("avx2")},
                    {"avx512", machine.model.has("avx512vl") && machine.model.has("avx512bw")},
                    {"cpus", text_of_list(ids)},
                    {"cores", ranks}};
  json["cgroup_cpus"] = machine.quota ? ordered_json(*machine.quota) : ordered_json(nullptr);
  json["blas"] = {{"library", blas.probe.library},       {"config", blas.probe.config},
                  {"OPENBLAS_CORETYPE", blas.user},      {"run_sets_coretype", blas.by_run},
                  {"sgemm_1024_one_thread", blas.rates}, {"remedy", blas.remedy}};
  json["run"] = {{"nproc_per_node", ranks},
                 {"threads_per_rank", plan.threads},
                 {"binding", plan.why},
                 {"cpus", ranks_cpus}};
  return json;
}

void print(const ordered_json& json, const Blas& blas) {
  auto text = [&](const char* key) { return json[key].get<std::string>(); };
  auto line = [](std::string_view name, std::string_view value) {
    std::puts(fmt::format("{:<11} {}", name, value).c_str());
  };
  line("trireme", fmt::format("{} ({})", text("trireme"), text("compiler")));
  line("worker",
       text("worker").empty() ? "not there: train, generate and bench need it" : text("worker"));
  line("kernel", text("kernel"));
  line("CPU", fmt::format("{}{}{}", text("cpu"), json["avx2"].get<bool>() ? ", AVX2" : "",
                          json["avx512"].get<bool>() ? ", AVX-512" : ""));
  line("CPUs",
       fmt::format("{} ({} cores){}", text("cpus"), json["cores"].get<int>(),
                   json["cgroup_cpus"].is_null() ? ", no cgroup limit"
                                                 : fmt::format(", a cgroup allows {:.1f}",
                                                               json["cgroup_cpus"].get<double>())));
  const auto& run = json["run"];
  line("run",
       fmt::format("--nproc-per-node {}: {} thread(s) a rank; {}", run["nproc_per_node"].get<int>(),
                   run["threads_per_rank"].get<int>(), run["binding"].get<std::string>()));
  int rank = 0;
  for (const auto& cpus : run["cpus"])
    if (!cpus.get<std::string>().empty() && rank < 8)
      line("", fmt::format("rank {}: CPUs {}", rank++, cpus.get<std::string>()));
  if (blas.probe.library.empty()) {
    line("BLAS",
         "no OpenBLAS found: install libopenblas0-pthread, or LibTorch computes several times "
         "slower");
    return;
  }
  line("BLAS", fmt::format("{}: {}", blas.probe.library, blas.probe.config));
  for (const auto& rate : blas.rates) {
    auto choice = rate["OPENBLAS_CORETYPE"].get<std::string>();
    double gflops = rate["gflops"].get<double>();
    line("", fmt::format("{:<27} {:<12} {}{}",
                         choice.empty() ? "OPENBLAS_CORETYPE unset" : "OPENBLAS_CORETYPE=" + choice,
                         rate["corename"].get<std::string>(),
                         gflops > 0 ? fmt::format("{:.0f} GFLOP/s", gflops) : "does not run here",
                         choice == blas.user ? "  <- now" : ""));
  }
  if (blas.remedy.empty()) return;
  bool run_mends = !blas.by_run.empty();
  line("remedy", fmt::format("{}    # {:.1f} times faster{}", blas.remedy, blas.gain,
                             run_mends ? "; 'trireme run' sets it for its workers" : ""));
}

}  // namespace

int doctor_main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == kSgemmProbe) return sgemm_probe();
  auto flags = parse_json_and_help(argc, argv, kHelp);
  if (flags.done) return 0;
  launch::Machine machine = launch::read_machine();
  Blas blas = examine_blas(machine);
  ordered_json json = describe(machine, blas);
  if (flags.json.empty())
    print(json, blas);
  else
    write_json(flags.json, json);
  return 0;
}

}  // namespace trireme
