// SPDX-License-Identifier: Apache-2.0
// The smallest program of somebody's own: what its ranks do is theirs, here one call.
#include <unistd.h>

#include <thread>

#include "trireme/train/train_main.h"

namespace {

// As libraries do that it may link: a thread from before main(), which blocks no signal.
const bool kHasThread = [] {
  std::thread([] {
    while (true) ::pause();
  }).detach();
  return true;
}();

}  // namespace

int main(int argc, char** argv) {
  if (!kHasThread) return 1;
  trireme::MainProgram program;
  program.purpose = "Train what this program is for.";
  program.train = [](const trireme::Config& config, trireme::Group group,
                     const trireme::TrainOptions& options) {
    return trireme::train(config, std::move(group), options);
  };
  return trireme::train_main(argc, argv, program);
}
