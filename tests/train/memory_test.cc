// SPDX-License-Identifier: Apache-2.0
// A step needs no second copy of the gradients.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/train/small_runs.h"
#include "trireme/base/check.h"
#include "trireme/grad/reducer.h"
#include "trireme/tensor/live_bytes.h"
#include "trireme/train/forward_backward.h"

namespace memory_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

/// Of what this thread takes from LibTorch's CPU allocator, above what it had. Gradient buckets
/// come from Group::empty() and are not counted.
template <class Body>
int64_t peak_of(const Body& body) {
  LiveBytes live;
  body();
  return live.peak();
}

/// Ten layers of one size, so that "one parameter in flight" is a tenth of all; a batch so small
/// that activations hardly count.
Config ten_layers(const Sets& sets) {
  const std::string width = "256";
  std::string hidden = "model.hidden=[" + width;
  for (int i = 0; i < 8; ++i) hidden += "," + width;
  Sets all = {"data.type=dummy", hidden + "]", "model.inputs=" + width, "model.outputs=" + width};
  all.insert(all.end(), sets.begin(), sets.end());
  return digits("mlp", all);
}

int64_t gradient_bytes(const Run& run) {
  int64_t bytes = 0;
  for (const auto& [name, p] : run.gradients->parameters())
    bytes += static_cast<int64_t>(p.nbytes());
  return bytes;
}

}  // namespace

TEST(train_memory, gradients_lie_in_their_buckets_from_the_first_micro_batch_on) {
  const Config config = digits("mlp", {"gradient_accumulation_steps=4"});
  run_threads(2, [&](Group g) {
    trireme::Run run = build_run(config, g);
    start_data(run, config);
    for (int step = 0; step < 2; ++step) {  // the first rebuilds the buckets
      const Batch batch = next_batch(run);
      run.gradients->open(4);
      for (size_t i = 0; i < batch.size(); ++i) {
        forward_backward(run, {batch[i]});
        size_t k = 0;
        for (const auto& [name, p] : run.gradients->parameters())
          EXPECT_EQ(p.grad().data_ptr(), run.gradients->reducer().gradient(k++).data_ptr())
              << name << " has a gradient of its own after micro-batch " << i;
      }
      run.gradients->close();
    }
  });
}

TEST(train_memory, a_step_holds_at_most_one_gradient_in_flight_beside_the_buckets) {
  for (int accumulation : {1, 2, 4}) {
    const Config config =
        ten_layers({"gradient_accumulation_steps=" + std::to_string(accumulation)});
    run_threads(2, [&](Group g) {
      trireme::Run run = build_run(config, g);
      start_data(run, config);
      train_step(run);  // rebuilds buckets, makes momentum
      const int64_t peak = peak_of([&] { train_step(run); });
      // A first contribution is written into its bucket; later ones are added to it.
      if (accumulation == 1)
        EXPECT_LT(peak, gradient_bytes(run) / 20);
      else
        EXPECT_GT(peak, gradient_bytes(run) / 20) << "nothing was counted";
      EXPECT_LT(peak, gradient_bytes(run) / 2) << "accumulation " << accumulation;
    });
  }
}

TEST(train_memory, reproducible_mode_holds_as_many_gradients_as_it_says) {
  for (int leaves : {2, 4, 16}) {  // over two ranks
    const Config config =
        ten_layers({"training.reproducible=true", "training.leaves=" + std::to_string(leaves),
                    "train_batch_size=16"});
    run_threads(2, [&](Group g) {
      trireme::Run run = build_run(config, g);
      start_data(run, config);
      train_step(run);
      const int64_t peak = peak_of([&] { train_step(run); });
      const int said = run.gradients->tree_buffers(leaves / 2);
      EXPECT_EQ(said, leaves == 2 ? 1 : leaves == 4 ? 2 : 4);
      EXPECT_LT(peak, (said + 0.5) * gradient_bytes(run)) << leaves << " leaves";
    });
  }
}

TEST(train_memory, shared_memory_holds_the_gradients_once) {
  // The GPT's gradients come in another order than its parameters, so the first step rebuilds the
  // buckets.
  const Config config = tiny_gpt(
      "unused", {"data.type=dummy", "model.layers=4", "model.width=192", "train_batch_size=2"});
  SpawnOptions options;
  options.timeout = std::chrono::seconds(60);
  options.args = {"--gtest_filter=train_memory.shared_memory_*"};
  spawn(
      2,
      [&](Group g) {
        trireme::Run run = build_run(config, g);
        start_data(run, config);
        for (int i = 0; i < 3; ++i) train_step(run);
        g.barrier();
        // Both ranks map both ranks' windows.
        int64_t mapped = 0;
        std::istringstream maps(read_file("/proc/self/maps"));
        for (std::string line; std::getline(maps, line);) {
          if (line.find("memfd:trireme") == std::string::npos) continue;
          uint64_t begin = 0, end = 0;
          if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2)
            mapped += static_cast<int64_t>(end - begin);
        }
        const int64_t gradients = gradient_bytes(run);
        trireme::check<Error>(mapped > 2 * gradients, "windows of {} bytes were found", mapped);
        // Beside the gradients: control memory, and a window of 4 MiB for small blocks.
        trireme::check<Error>(mapped / 2 < gradients + (11 << 20) / 2,
                              "windows of {:.1f} MiB a rank hold gradients of {:.1f} MiB",
                              static_cast<double>(mapped) / 2 / 1048576,
                              static_cast<double>(gradients) / 1048576);
        g.barrier();
      },
      options);
}

}  // namespace memory_test
