// SPDX-License-Identifier: Apache-2.0
// The smallest program of somebody's own: what its ranks do is theirs, here one call.
#include "trireme/train/train_main.h"

int main(int argc, char** argv) {
  trireme::MainProgram program;
  program.purpose = "Train what this program is for.";
  program.train = trireme::train;
  return trireme::train_main(argc, argv, program);
}
