// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/export.h"
#include "trireme/comm/group.h"
#include "trireme/config/config.h"
#include "trireme/config/resolved.h"
#include "trireme/train/trainer.h"

// What `trireme train` offers, for a program of your own: configuration files and --set, the
// launcher and its flags, the run folder, --resume, checkpoints on Ctrl-C.
namespace trireme {

struct ModelShape;  // planner/model_shape.h

/// Performs a whole run on one rank; every rank calls it. The result determines the exit code. It
/// must honour `stop_asked`, `say`, `built` and `run_dir` of TrainOptions, as train() does.
using TrainFunction = std::function<TrainResult(const Config&, Group, const TrainOptions&)>;

struct MainProgram {
  /// One sentence that says what the program is for; the first line of --help.
  std::string purpose = "Train a model from configuration files, on N ranks of this machine.";
  TrainFunction train;
  /// How a configuration is read, from files or from the output of Config::to_json(). A program
  /// with its own keys must load with its own table in both.
  std::function<Config(const ConfigInputs&)> load = [](const ConfigInputs& inputs) {
    return Config::load(inputs);
  };
  std::function<Config(std::string_view)> load_resolved = [](std::string_view text) {
    return trireme::load_resolved(text);
  };
  /// Returns why this program cannot train so on so many ranks, and what to do; "" if it can.
  /// Called before ranks start. If empty, the ranks find out.
  std::function<std::string(const Config&, int ranks)> fault = {};
  /// Describes the model for `PROGRAM summary`; if empty, there is no such command.
  std::function<ModelShape(const Config&)> shape = {};
  /// Set to true if `train` builds the model and data described by model.* and data.*, so that a
  /// combination that does not work or does not fit into memory is refused before ranks start.
  bool built_in_model = false;
};

/// The complete main() of a program:
///
///   int main(int argc, char** argv) { return trireme::train_main(argc, argv, my_program()); }
///
///   ./gan gan.json --nproc-per-node 2 --set training.steps=500
///   ./gan gan.json --resume
///   ./gan gan.json --run-dir runs/gan --resume auto
///   trireme run --nproc-per-node 2 ./gan gan.json --run-dir runs/gan
///   mpirun -n 2 ./gan gan.json --run-dir runs/gan
///   ./gan summary gan.json --nproc-per-node 2
///
/// The first process checks flags and configuration, takes the run folder, and starts this program
/// again for each rank, with an internal first argument (and with threads, CPUs and core type set,
/// which BLAS libraries read while they load). Under another launcher, the process becomes its
/// rank. Nothing is thrown: errors are printed, once per job.
///
/// Returns the exit code: 0 done; 1 failed; 2 invalid usage or configuration; 130 stopped by Ctrl-C
/// and 75 by SIGTERM, SIGHUP or SIGUSR1, each after the current step and with a checkpoint; 128+n
/// ended by signal n.
///
/// Unlike the rest of the library, it takes over the process: it opens closed standard streams on
/// /dev/null, handles signals, prints --help, configures the allocator and denormals, and sets the
/// log level to info. Call it first in main(): anything before it also runs in every rank.
TRIREME_API int train_main(int argc, char** argv, const MainProgram& program);

/// Wraps a Program (train/program/program.h) for train_main(). `make` is called once to read its
/// keys and once on each rank.
TRIREME_API MainProgram main_program(std::function<std::unique_ptr<Program>()> make);

///   int main(int argc, char** argv) { return trireme::train_main<MyProgram>(argc, argv); }
template <class MyProgram>
int train_main(int argc, char** argv) {
  return train_main(argc, argv, main_program([] { return std::make_unique<MyProgram>(); }));
}

}  // namespace trireme
