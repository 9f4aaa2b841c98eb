// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <set>

#include "cli/bench_ops.h"
#include "cli/verbs.h"
#include "cli/worker_program.h"
#include "trireme/base/check.h"
#include "trireme/front/start_ranks.h"
#include "trireme/launch/flags/options.h"
#include "trireme/launch/job_plan.h"
#include "trireme/launch/launch.h"
#include "trireme/rendezvous/rank_env.h"

namespace trireme {
namespace {

using launch::process_env;

// nccl-tests' flags that mean nothing here; ignoring them would change what the user gets.
struct Refused {
  const char* flags[2];
  const char* why;
};
const Refused kRefused[] = {
    {{"-g", "--ngpus"},
     "a rank is a process or a thread on CPUs: say how many with --nproc-per-node"},
    {{"-t", "--nthreads"}, "write --ranks threads --nproc-per-node N"},
    {{"-m", "--agg_iters"}, "every call is timed alone"},
    {{"-N", "--run_cycles"}, "use --rounds"},
    {{"-z", "--blocking"}, "every timed call is waited for"},
    {{"-a", "--average"}, "the time is of the slowest rank"},
    {{"-G", "--cudagraph"}, "there is no CUDA graph"},
    {{"-p", "--parallel_init"}, "ranks start in parallel"},
};

// -r and -t are nccl-tests' here and torchrun's in `trireme run`: this verb is read first.
std::vector<std::string> with_our_meaning(std::vector<std::string> words) {
  for (auto& word : words) {
    const std::string flag = word.substr(0, word.find('='));
    for (const auto& refused : kRefused)
      for (const char* name : refused.flags)
        check<UsageError>(flag != name, "bench: {} of nccl-tests is not taken: {}", name,
                          refused.why);
    if (flag == "-r") word = "--root" + word.substr(2);
  }
  return words;
}

struct BenchFlags {
  std::vector<std::string> ops;
  std::string backend = "local", begin = "4", end = "64M", step, memory = "arena", dtype = "float",
              op = "sum", root = "0", ranks = "processes", json, table;
  int64_t factor = 4, iters = 0;
  int rounds = 7, warmup = 5, check = 1;
  bool tune = false, force = false;
};

void declare(CLI::App& app, BenchFlags& f) {
  app.add_option("OP", f.ops,
                 "all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter, "
                 "all_to_all, sendrecv (a ring), pingpong (one way, 2 ranks), barrier; several, or "
                 "all");
  app.add_option("--backend", f.backend,
                 "local, gloo (torch's own), mpi, hybrid; several by comma, the first is compared "
                 "with the others [local]");
  app.add_option("--ranks", f.ranks, "processes or threads [processes]")
      ->check(CLI::IsMember({"processes", "threads"}));
  app.add_option("-b,--minbytes", f.begin, "smallest size [4]");
  app.add_option("-e,--maxbytes", f.end, "largest size [64M]");
  auto* factor = app.add_option("-f,--stepfactor", f.factor, "from one size to the next [4]")
                     ->check(CLI::Range(2, 1 << 20));
  app.add_option("-i,--stepbytes", f.step, "add this to a size instead")->excludes(factor);
  app.add_option("-n,--iters", f.iters, "timed calls of a round; 0: as many as take 20 ms [0]")
      ->check(CLI::Range(0, 1000000));
  app.add_option("-w,--warmup_iters", f.warmup, "calls that are not timed [5]")
      ->check(CLI::Range(0, 100000));
  app.add_option("--rounds", f.rounds, "rounds that alternate between backends [7]")
      ->check(CLI::Range(1, 1000));
  app.add_option("-c,--check", f.check, "compare results with the true values [1]")
      ->check(CLI::Range(0, 1));
  app.add_option("-d,--datatype", f.dtype,
                 "float, double, half, bfloat16, int8, uint8, int32, int64; several, or all "
                 "[float]");
  app.add_option("-o,--op", f.op, "sum, prod, min, max, avg; several, or all [sum]");
  app.add_option("-r,--root", f.root, "root of broadcast, reduce, gather, scatter, or all [0]");
  app.add_option("--memory", f.memory,
                 "arena: where gradients live; plain: ordinary memory [arena]")
      ->check(CLI::IsMember({"arena", "plain"}));
  app.add_option("--json", f.json,
                 "a JSON line for each row, to FILE; -: stdout, instead of the table");
  auto* tune = app.add_flag("--tune", f.tune,
                            "time the algorithms of all_reduce over one backend of ours, and keep "
                            "which is fastest by size for this kind of host");
  app.add_option("--table", f.table, "where --tune writes [~/.cache/trireme/tuning-….json]")
      ->needs(tune);
  app.add_flag("--force", f.force, "write the table though others used the machine")->needs(tune);
}

int64_t size_of(const std::string& text, const char* flag, int64_t least) {
  const int64_t bytes = bench::bytes_of(text);
  check<UsageError>(bytes >= least, "bench: {} {} is not a size; write 4, 64K, 16M or 1G", flag,
                    text);
  return bytes;
}

int root_of(const std::string& text, int ranks) {
  if (text == "all" || text == "-1") return -1;
  char* end = nullptr;
  const long root = std::strtol(text.c_str(), &end, 10);
  check<UsageError>(!text.empty() && !*end && root >= 0 && root < ranks,
                    "bench: -r {}: the root is a rank, 0 to {}, or all", text, ranks - 1);
  return static_cast<int>(root);
}

std::string cpu_lists(const launch::CpuPlan& plan) {
  std::string text;
  for (const auto& cpus : plan.cpus) {
    if (cpus.empty()) return "none";
    text += (text.empty() ? "" : ":") + fmt::format("{}", fmt::join(cpus, ","));
  }
  return text;
}

}  // namespace

int bench_main(int argc, char** argv) {
  std::vector<std::string> rest;
  auto options = launch::extract_run_options(with_our_meaning(words_of(argc, argv)), &rest);
  launch::refuse_several_nodes(options);
  CLI::App app(
      "Time collectives of ours and of peers, alternating in one run. nccl-tests' flags and "
      "columns.",
      "trireme bench");
  app.footer(
      "Times are of the slowest rank, medians over rounds; p90 over all calls. busbw has "
      "nccl-tests' "
      "factors.\n\nExamples:\n"
      "  trireme bench all_reduce --nproc-per-node 2\n"
      "  trireme bench all --nproc-per-node 4 -b 64K -e 16M --json bench.jsonl\n"
      "  trireme bench all_reduce --nproc-per-node 2 --backend local,gloo,mpi -b 4 -e 256M -f 4\n"
      "  trireme bench --tune --nproc-per-node 4\n"
      "  trireme bench pingpong sendrecv --ranks threads --nproc-per-node 2\n"
      "With mpi among the backends the ranks are started by mpirun. The flags of 'trireme run' are "
      "taken too\n(but -r is the root and -t is refused: write --redirects and --tee). Under "
      "mpirun, srun or torchrun\nit is one of their ranks.");
  BenchFlags f;
  declare(app, f);
  std::reverse(rest.begin(), rest.end());
  try {
    app.parse(rest);
  } catch (const CLI::Success&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitDone;
  } catch (const CLI::ParseError& e) {
    fail<UsageError>("bench: {}. 'trireme bench --help' shows its flags",
                     parse_problem(app, e, launch::with_run_flags({})));
  }

  const RankEnv self = read_rank_env();
  const bool is_rank = self.world_size > 1;
  const bool threads = f.ranks == "threads";
  const int ranks = is_rank ? self.world_size : options.nproc_per_node;
  if (f.tune) {
    check<UsageError>(f.ops.empty() || f.ops == std::vector<std::string>{"all_reduce"},
                      "bench --tune: only all_reduce has several algorithms");
    check<UsageError>(f.dtype == "float" && f.op == "sum",
                      "bench --tune: takes sums of float; leave -d and -o out");
    check<UsageError>(f.backend == "local" || f.backend == "gloo",
                      "bench --tune: --backend is one of local and gloo: the others add in another "
                      "order than the algorithms, and sums must not depend on what was measured");
    f.ops = {"all_reduce"};
  }
  check<UsageError>(!f.ops.empty(), "bench: name an operation: {} or all",
                    fmt::join(bench::kOpNames, ", "));
  const std::string ops = fmt::format("{}", fmt::join(f.ops, ","));
  bench::choose(ops, bench::as_strings(bench::kOpNames), "OP");
  bench::choose(f.op, bench::as_strings(bench::kRedNames), "-o");
  bench::choose(f.dtype, bench::type_names(), "-d");
  const auto backends = bench::choose(f.backend, bench::as_strings(bench::kBackends), "--backend");
  const bool mpi = std::find(backends.begin(), backends.end(), "mpi") != backends.end();
  const bool hybrid = std::find(backends.begin(), backends.end(), "hybrid") != backends.end();
  const bool local = std::find(backends.begin(), backends.end(), "local") != backends.end();
  check<UsageError>(!hybrid || !local,
                    "bench: local is for ranks of one host, hybrid for several: time one of them "
                    "against gloo or mpi");
  check<UsageError>(!threads || (!mpi && !hybrid),
                    "bench: {} wants ranks that are processes; with --ranks threads there are "
                    "local and gloo",
                    mpi ? "mpi" : "hybrid");
  check<UsageError>(!threads || !is_rank,
                    "bench: --ranks threads runs in one process, but this is rank {} of {} ({})",
                    self.rank, self.world_size, self.source);
  const int64_t begin = size_of(f.begin, "-b", 1), end = size_of(f.end, "-e", 1),
                step = f.step.empty() ? 0 : size_of(f.step, "-i", 1);
  check<UsageError>(begin <= end, "bench: -b {} is more than -e {}", f.begin, f.end);

  std::vector<std::string> command = {worker_program(), "bench",
                                      "--ops",          ops,
                                      "--op",           f.op,
                                      "--dtype",        f.dtype,
                                      "--backend",      f.backend,
                                      "--ranks",        f.ranks,
                                      "--begin",        std::to_string(begin),
                                      "--end",          std::to_string(end),
                                      "--factor",       step ? "0" : std::to_string(f.factor),
                                      "--step",         std::to_string(step),
                                      "--root",         std::to_string(root_of(f.root, ranks)),
                                      "--rounds",       std::to_string(f.rounds),
                                      "--calls",        std::to_string(f.iters),
                                      "--warmup",       std::to_string(f.warmup),
                                      "--check",        std::to_string(f.check),
                                      "--memory",       f.memory,
                                      "--purpose",      f.tune ? "tune" : "compare",
                                      "--force",        f.force ? "1" : "0"};
  if (!f.table.empty()) {
    command.push_back("--table");
    command.push_back(std::filesystem::absolute(f.table).string());
  }
  if (!f.json.empty()) {
    command.push_back("--json");
    command.push_back(f.json == "-" ? f.json : std::filesystem::absolute(f.json).string());
  }
  if (is_rank && !options.dry_run) become(command);
  if (!mpi && !threads) return start_ranks(options, command, launch::FailureReport::one_line);

  // One process, or MPI's own children: bound and given threads as our launcher does it.
  const launch::Machine machine = launch::read_machine();
  const auto plan = launch::plan_cpus(machine.cpus, machine.quota, ranks, options.cpu_binding);
  if (threads) {
    command.insert(command.end(), {"--nproc", std::to_string(ranks), "--cpus", cpu_lists(plan)});
  } else {
    std::set<std::pair<int, int>> cores;
    for (const auto& cpu : machine.cpus) cores.insert({cpu.package, cpu.core});
    const auto most = static_cast<double>(machine.cpus.size());
    const std::string bind = plan.cpus[0].empty()                         ? "none"
                             : static_cast<size_t>(ranks) <= cores.size() ? "core"
                                                                          : "hwthread";
    std::vector<std::string> by_mpi = {"mpirun",          "-np",       std::to_string(ranks),
                                       "--oversubscribe", "--bind-to", bind};
    // More ranks than CPUs: those that wait must let the others run.
    if (ranks > std::min(most, machine.quota.value_or(most)))
      by_mpi.insert(by_mpi.end(), {"--mca", "mpi_yield_when_idle", "1"});
    if (::geteuid() == 0) by_mpi.push_back("--allow-run-as-root");
    by_mpi.insert(by_mpi.end(), command.begin(), command.end());
    command = by_mpi;
  }
  if (options.dry_run) {
    std::puts(fmt::format("{}", fmt::join(command, " ")).c_str());
    return kExitDone;
  }
  for (const auto& [name, value] :
       launch::math_env(plan.threads, launch::choose_coretype(machine.model, machine.blas_corename),
                        process_env))
    ::setenv(name.c_str(), value.c_str(), 0);
  become(command);
}

}  // namespace trireme
