// SPDX-License-Identifier: Apache-2.0
// A job that outlives its ranks, as torchrun's tutorial on fault tolerance has it: training saves a
// snapshot after each epoch, and begins with the newest one if there is any. When a rank dies the
// launcher starts all of them again. FAIL_AT is for trying that: in this epoch the last rank of the
// first attempt kills itself.
//   trireme run --nproc-per-node 2 --max-restarts 3 elastic SNAPSHOTS EPOCHS [FAIL_AT]
// On hosts that come and go: trireme run --nnodes 1:4 … on each, with SNAPSHOTS where all see it.
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

// The launcher counts attempts here, under torchrun's name for it.
bool first_attempt() {
  const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return !count || std::atoi(count) == 0;
}

struct Trainer {
  Trainer(trireme::Group group, std::string snapshots)
      : world(group), path(std::move(snapshots)), ddp(model, world) {
    if (const auto saved = trireme::load_if_any(path, snapshot, world))
      std::printf("[rank %d] Resuming training from snapshot at epoch %" PRId64 "\n", world.rank(),
                  epochs_run);
  }

  void run_epoch(int64_t epoch) {
    trireme::mark_progress(trireme::Activity::step, epoch + 1);  // a rank that hangs is found, too
    sampler.set_epoch(epoch);
    for (auto& [data, target] : *loader) {
      optimizer.zero_grad();
      torch::mse_loss(model(data.flatten(1)), torch::one_hot(target, 10).to(torch::kFloat))
          .backward();
      optimizer.step();
    }
  }

  void train(int64_t max_epochs, int64_t fail_at) {
    for (int64_t epoch = epochs_run; epoch < max_epochs; ++epoch) {
      if (epoch == fail_at && first_attempt() && world.rank() + 1 == world.size())
        std::raise(SIGKILL);
      run_epoch(epoch);
      epochs_run = epoch + 1;
      trireme::save(path, epochs_run, snapshot, world, {.keep = 2});  // every rank calls it
      if (world.rank() == 0) std::printf("Epoch %" PRId64 " | Training snapshot saved\n", epoch);
    }
    trireme::mark_progress(trireme::Activity::done);
    if (world.rank() == 0)
      std::printf("%" PRId64 " epochs, sum of weights %.9g\n", epochs_run,
                  model->weight.sum().item<double>());
  }

  trireme::Group world;
  std::string path;
  torch::nn::Linear model{784, 10};
  trireme::DistributedDataParallel ddp;
  torch::optim::Adam optimizer{model->parameters(), torch::optim::AdamOptions(1e-3)};
  trireme::SourceDataset dataset{trireme::make_digits({.count = 256})};
  trireme::DistributedSampler sampler{256, static_cast<size_t>(world.size()),
                                      static_cast<size_t>(world.rank())};
  std::unique_ptr<
      torch::data::StatelessDataLoader<trireme::SourceDataset, trireme::DistributedSampler>>
      loader = torch::data::make_data_loader(dataset, sampler, 32);
  int64_t epochs_run = 0;
  trireme::StateWalk snapshot =
      trireme::all_of({trireme::state_of(model), trireme::state_of(optimizer, model),
                       trireme::state_of("epochs_run", epochs_run)});
};

int main(int argc, char** argv) try {
  if (argc < 3) throw trireme::UsageError("usage: elastic SNAPSHOTS EPOCHS [FAIL_AT]");
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what a rank printed is not lost when it is killed
  torch::manual_seed(1);
  Trainer(trireme::init_process_group(), argv[1])
      .train(std::atoll(argv[2]), argc > 3 ? std::atoll(argv[3]) : -1);
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
