// SPDX-License-Identifier: Apache-2.0
// The transformer of transformer.h in one process, with torch::nn alone: the losses that
// from_transformer.cc has to have.
//   own_loop_transformer
#include "transformer.h"

int main() {
  Whole net;
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < kSteps; ++step) {
    double total = 0;
    optimizer.zero_grad();
    for (int i = 0; i < kMicroBatches; ++i) {
      const auto tokens = tokens_of(int64_t{step} * kMicroBatches + i);
      const auto logits = net.forward(tokens.narrow(1, 0, kTime)).reshape({-1, kVocab});
      const auto loss =
          torch::nn::functional::cross_entropy(logits, tokens.narrow(1, 1, kTime).reshape({-1})) /
          kMicroBatches;
      loss.backward();
      total += loss.item<double>();
    }
    optimizer.step();
    print(step + 1, total);
  }
}
