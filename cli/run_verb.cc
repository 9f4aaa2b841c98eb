// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "cli/verbs.h"
#include "trireme/front/start_ranks.h"
#include "trireme/launch/flags/options.h"

namespace trireme {
namespace {

const char kRunHelp[] =
    R"(Start a program as N ranks on this machine, or on several, watch them, stop them all when one fails.

Usage: trireme run [FLAGS] PROGRAM [ARGUMENTS …]

Examples:
  trireme run --nproc-per-node 2 ./my_program --its-flag 3
  trireme run --standalone --nproc_per_node=auto train.py       # python3 -u train.py, as torchrun does
  trireme run --nproc-per-node 4 --tee 3 --log-dir logs ./my_program
  trireme run --nproc-per-node 2 --dry-run ./my_program          # what would be started, as JSON
  trireme run --nnodes 2 --node-rank 0 --master-addr host0 --nproc-per-node 4 ./my_program   # on host0; on the other
                                                                                  # host the same with --node-rank 1

Flags (dashes or underscores; --flag value or --flag=value; [default]):
)";

const char kRunAfterFlags[] = R"(
Each flag falls back to the variable PET_<FLAG>, as PET_NPROC_PER_NODE. '${local_rank}' in ARGUMENTS becomes the rank's
number. Workers get torchrun's environment (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, …), OMP_NUM_THREADS and
OPENBLAS_CORETYPE where you have not set them.

Exit code: 0 all done, 1 a worker failed (the block on stderr names the first), 2 usage, 75 stopped with a checkpoint,
128+n ended by signal n.
)";

}  // namespace

int run_main(int argc, char** argv) {
  auto options = launch::parse_run_options(words_of(argc, argv));
  if (options.help) {
    std::fputs(kRunHelp, stdout);
    std::fputs(launch::run_flags_help().c_str(), stdout);
    std::fputs(kRunAfterFlags, stdout);
    return 0;
  }
  return start_ranks(options, options.command);
}

}  // namespace trireme
