// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/train_main.h"

#include <fmt/core.h>

#include <filesystem>
#include <new>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/standard_streams.h"
#include "trireme/front/own_program.h"
#include "trireme/front/train_front.h"
#include "trireme/train/rank/ask_device.h"
#include "trireme/train/rank/failure.h"
#include "trireme/train/rank/own_summary.h"
#include "trireme/train/rank/train_rank.h"

namespace trireme {
namespace {

/// The first argument of a process that is a rank; no flag or file has this name.
const char kRankWord[] = "--trireme-rank";

constexpr char kOwnHelp[] = R"({purpose}

Usage: {program} CONFIG [CONFIG …] [FLAGS]

Later files override earlier ones, --set overrides files. A run has a folder with its resolved config.json, metrics.jsonl
and checkpoints step-00000100/ …

Examples:
  {program} config.json --nproc-per-node 2
  {program} config.json ds_config.json --set training.steps=500
  {program} config.json --run-dir runs/first --metrics first.jsonl
  {program} config.json --resume                      # the newest run of this configuration
  {program} --resume runs/config/20261121-101500      # that run, as it was configured
{summary})";

TrainFront front_of(const MainProgram& program, const std::string& typed) {
  TrainFront front;
  front.program = typed;
  front.name = std::filesystem::path(typed).filename().string();
  front.example = typed + " config.json";
  front.help = fmt::format(
      kOwnHelp, fmt::arg("purpose", program.purpose), fmt::arg("program", typed),
      fmt::arg("summary", program.shape ? "  " + typed +
                                              " summary config.json --nproc-per-node 8   # "
                                              "parameters, and memory of each rank\n"
                                        : ""));
  front.rank_command = [] { return Words{own_program(), kRankWord}; };
  front.own_command = [] { return Words{own_program()}; };
  front.load = program.load;
  front.fault = program.fault;
  front.built_in_model = program.built_in_model;
  front.ask_device = ask_device;
  return front;
}

int rank_of(const MainProgram& program, const Words& words) {
  try {
    return train_rank(words, program);
  } catch (const std::exception& error) {
    return report_failure(error, program.built_in_model);
  }
}

}  // namespace

int train_main(int argc, char** argv, const MainProgram& program) {
  open_missing_standard_streams();
  set_log_level(LogLevel::info);
  if (argc > 1 && std::string(argv[1]) == kRankWord)
    return rank_of(program, Words(argv + 2, argv + argc));
  const std::string typed = argc > 0 && *argv[0] ? argv[0] : "program";
  try {
    if (argc > 1 && std::string(argv[1]) == "summary" && program.shape)
      return own_summary(program, typed, Words(argv + 2, argv + argc));
    return train_front(front_of(program, typed), argc, argv);
  } catch (const std::bad_alloc&) {
    log_error("out of memory before anything was started: see 'ulimit -v' and 'free'");
    return kExitFailed;
  } catch (const std::exception& error) {
    log_error("{}", error.what());
    return exit_code_for(error);
  }
}

}  // namespace trireme
