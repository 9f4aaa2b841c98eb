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

// A program of your own with what `trireme train` has: configuration files and --set, the launcher
// and its flags, the run folder, --resume, checkpoints on Ctrl-C.
namespace trireme {

struct ModelShape;  // planner/model_shape.h

/// A whole run on one rank; every rank calls it. What it returns decides the exit code, and
/// TrainOptions::stop_asked, say, built and run_dir are to be used as train() uses them.
using TrainFunction = std::function<TrainResult(const Config&, Group, const TrainOptions&)>;

struct MainProgram {
  /// One sentence: what the program is for. It is the first line of --help.
  std::string purpose = "Train a model from configuration files, on N ranks of this machine.";
  TrainFunction train;
  /// How a configuration is read: from files, and from what Config::to_json() wrote. A program with
  /// keys of its own loads with its table in both.
  std::function<Config(const ConfigInputs&)> load = [](const ConfigInputs& inputs) {
    return Config::load(inputs);
  };
  std::function<Config(std::string_view)> load_resolved = [](std::string_view text) {
    return trireme::load_resolved(text);
  };
  /// The model, for `PROGRAM summary`; empty: there is no such word.
  std::function<ModelShape(const Config&)> shape = {};
  /// True: `train` builds the model and the data that model.* and data.* describe, so that what
  /// does not fit into memory or together can be refused beforehand.
  bool built_in_model = false;
};

/// The whole of main():
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
/// The first call checks flags and configuration, takes the run folder, and starts this program
/// again for each rank, with a first word of its own (and with threads, CPUs and core type set,
/// which BLAS libraries read while they load). Under somebody's launcher it becomes its rank.
/// Nothing is thrown: errors are printed, once for the job.
///
/// Exit code: 0 done, 1 failed, 2 usage or configuration, 130 stopped by Ctrl-C and 75 by SIGTERM,
/// SIGHUP or SIGUSR1, each after the step and with a checkpoint; 128+n ended by signal n.
///
/// A library is a guest, but here main() hands its process over: standard streams that are closed
/// are opened on /dev/null, signals are taken, --help is printed, allocator and denormals are set,
/// the log level is info. Call it first in main(): what was done before it is done again in every
/// rank.
TRIREME_API int train_main(int argc, char** argv, const MainProgram& program);

/// A program (train/program/program.h) as main() runs it. `make` is called once for its keys and
/// once on each rank.
TRIREME_API MainProgram main_program(std::function<std::unique_ptr<Program>()> make);

///   int main(int argc, char** argv) { return trireme::train_main<MyProgram>(argc, argv); }
template <class MyProgram>
int train_main(int argc, char** argv) {
  return train_main(argc, argv, main_program([] { return std::make_unique<MyProgram>(); }));
}

}  // namespace trireme
