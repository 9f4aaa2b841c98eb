// SPDX-License-Identifier: Apache-2.0
#include "cli/ask_worker.h"
#include "cli/verbs.h"
#include "cli/worker_program.h"
#include "trireme/front/own_program.h"
#include "trireme/front/train_front.h"

namespace trireme {
namespace {

const char kTrainHelp[] =
    R"(Train a model from configuration files, on N ranks of this machine or of several.

Usage: trireme train CONFIG [CONFIG …] [FLAGS]

Later files override earlier ones, --set overrides files. A run has a folder with its resolved config.json, metrics.jsonl
and checkpoints step-00000100/ …; `trireme generate` reads it.

Examples:
  trireme train examples/gpt.json --nproc-per-node 2
  trireme train examples/gpt.json ds_config.json --set training.steps=500
  trireme train examples/net.json --run-dir runs/net --metrics net.jsonl
  trireme train examples/gpt.json --run-dir /shared/gpt --nnodes 2 --node-rank 0 --master-addr host0 --nproc-per-node 4
  trireme train examples/gpt.json --resume                 # the newest run of this configuration
  trireme train --resume runs/gpt/20261121-101500          # that run, as it was configured
  trireme train --resume --run-dir runs/net                # the same, by its folder
)";

}  // namespace

int train_main(int argc, char** argv) {
  TrainFront front;
  front.help = kTrainHelp;
  front.rank_command = [] { return std::vector<std::string>{worker_program(), "train"}; };
  front.own_command = [] { return std::vector<std::string>{own_program(), "train"}; };
  front.ask_device = ask_worker;
  return train_front(front, argc, argv);
}

}  // namespace trireme
