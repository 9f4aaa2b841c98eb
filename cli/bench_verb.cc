// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/verbs.h"
#include "cli/worker_start.h"
#include "trireme/base/check.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/options.h"

namespace trireme {
namespace {

/// "4", "64K", "16M", "1G": bytes, as nccl-tests reads them.
int64_t bytes_of(const std::string& text, const char* flag) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  const std::string unit = value < 0 ? "?" : text.substr(used);
  const int shift = unit == "" || unit == "B"    ? 0
                    : unit == "K" || unit == "k" ? 10
                    : unit == "M" || unit == "m" ? 20
                    : unit == "G" || unit == "g" ? 30
                                                 : -1;
  check<UsageError>(shift >= 0 && value >= 1, "bench: {} {} is not a size; write 4, 64K, 16M or 1G",
                    flag, text);
  return static_cast<int64_t>(value * static_cast<double>(int64_t{1} << shift));
}

}  // namespace

int bench_main(int argc, char** argv) {
  std::vector<std::string> rest;
  auto ranks = launch::extract_run_options(words_of(argc, argv), &rest);
  CLI::App app(
      "Time collectives of ours and of peers, alternating in one run. nccl-tests' flags and "
      "columns.",
      "trireme bench");
  app.footer(
      "Examples:\n"
      "  trireme bench all_reduce --nproc-per-node 2\n"
      "  trireme bench all_reduce --nproc-per-node 2 --backend local,gloo,mpi -b 4 -e 256M -f 4 "
      "--memory arena --json out.jsonl\n"
      "With mpi among the backends the ranks are started by mpirun. The flags of 'trireme run' are "
      "taken too.");
  std::string op, backend = "local", begin = "4", end = "64M", memory = "arena", dtype = "float",
                  json;
  int64_t factor = 4;
  int rounds = 7, calls = 0, warmup = 1, check_results = 1;
  app.add_option("OP", op, "all_reduce")->required()->check(CLI::IsMember({"all_reduce"}));
  app.add_option(
      "--backend", backend,
      "local, gloo, mpi; several by comma, the first is compared with the others [local]");
  app.add_option("-b,--minbytes", begin, "smallest size [4]");
  app.add_option("-e,--maxbytes", end, "largest size [64M]");
  app.add_option("-f,--stepfactor", factor, "from one size to the next [4]")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("-n,--iters", calls, "timed calls of a round; 0: by size [0]")
      ->check(CLI::Range(0, 1000000));
  app.add_option("-w,--warmup_iters", warmup, "warm-up rounds [1]")->check(CLI::Range(0, 1000));
  app.add_option("--rounds", rounds, "rounds that alternate between backends [7]")
      ->check(CLI::Range(1, 1000));
  app.add_option("-c,--check", check_results, "compare results with the true sums [1]")
      ->check(CLI::Range(0, 1));
  app.add_option("-d,--datatype", dtype,
                 "float, double, half, bfloat16, int32, int64, uint8 [float]");
  app.add_option("--memory", memory, "arena: where gradients live; plain: ordinary memory [arena]")
      ->check(CLI::IsMember({"arena", "plain"}));
  app.add_option("--json", json,
                 "a JSON line for each row, to FILE; -: stdout, instead of the table");
  std::reverse(rest.begin(), rest.end());
  try {
    app.parse(rest);
  } catch (const CLI::Success&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitDone;
  } catch (const CLI::ParseError& e) {
    fail<UsageError>("bench: {}. 'trireme bench --help' shows its flags", e.what());
  }
  bool mpi = false;
  for (size_t at = 0; at <= backend.size();) {
    const size_t comma = std::min(backend.find(',', at), backend.size());
    const std::string name = backend.substr(at, comma - at);
    check<UsageError>(name == "local" || name == "gloo" || name == "mpi",
                      "bench: there is no backend '{}'; local, gloo and mpi are", name);
    mpi = mpi || name == "mpi";
    at = comma + 1;
  }
  const int64_t first = bytes_of(begin, "-b"), last = bytes_of(end, "-e");
  check<UsageError>(first <= last, "bench: -b {} is more than -e {}", begin, end);
  std::vector<std::string> command = {worker_program(), "bench",
                                      "--op",           op,
                                      "--backend",      backend,
                                      "--begin",        std::to_string(first),
                                      "--end",          std::to_string(last),
                                      "--factor",       std::to_string(factor),
                                      "--rounds",       std::to_string(rounds),
                                      "--calls",        std::to_string(calls),
                                      "--warmup",       std::to_string(warmup),
                                      "--check",        std::to_string(check_results),
                                      "--dtype",        dtype,
                                      "--memory",       memory};
  if (!json.empty()) {
    command.push_back("--json");
    command.push_back(json == "-" ? json : std::filesystem::absolute(json).string());
  }
  if (!mpi) return start_ranks(ranks, command, launch::FailureReport::one_line);
  // MPI's ranks must be MPI's own children. Bound to a core each, as our launcher binds them.
  std::vector<std::string> by_mpi = {"mpirun",    "-np",  std::to_string(ranks.nproc_per_node),
                                     "--bind-to", "core", "--oversubscribe"};
  if (::geteuid() == 0) by_mpi.push_back("--allow-run-as-root");
  by_mpi.insert(by_mpi.end(), command.begin(), command.end());
  become(by_mpi);
}

}  // namespace trireme
