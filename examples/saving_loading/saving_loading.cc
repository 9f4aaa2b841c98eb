// SPDX-License-Identifier: Apache-2.0
// PyTorch's tutorial "Saving and Loading Models", recipe by recipe. Every rank makes each call: a
// save under `if (rank == 0)` is not needed, and with a group it is refused. Start it again on
// other numbers of ranks: what 2 wrote, 1 or 4 read.
//   trireme run --nproc-per-node 2 saving_loading FOLDER [PYTHONS_WEIGHTS.pt]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cinttypes>
#include <cstdio>
#include <string>

using namespace trireme;

struct TheModelImpl : torch::nn::Module {
  explicit TheModelImpl(int classes = 10, const std::string& head = "fc2") {
    fc1 = register_module("fc1", torch::nn::Linear(8, 16));
    fc2 = register_module(head, torch::nn::Linear(16, classes));
  }
  torch::Tensor forward(const torch::Tensor& x) { return fc2(torch::relu(fc1(x))); }
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(TheModel);

void report(const Group& world, const char* what, bool good) {
  if (world.rank() == 0) std::printf("%s: %s\n", what, good ? "yes" : "no");
}

// torch.save(model.state_dict(), PATH); model.load_state_dict(torch.load(PATH)); model.eval()
void weights(Group world, const std::string& folder, TheModel model, const torch::Tensor& x) {
  save(folder + "/weights", 1, state_of(model), world);
  TheModel again;
  load_weights(folder + "/weights", state_of(again), world);
  again->eval();
  report(world, "weights give the same outputs", again(x).equal(model(x)));
}

// A dict of epoch, model_state_dict, optimizer_state_dict and loss, to go on with.
void general_checkpoint(Group world, const std::string& folder, const torch::Tensor& x) {
  TheModel model;
  DistributedDataParallel ddp(model, world);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
  int64_t epoch = 0;
  double loss = 0;
  const auto state = all_of({state_of(model), state_of(optimizer, model), state_of("epoch", epoch),
                             state_of("loss", loss)});
  if (const auto saved = load_if_any(folder + "/checkpoint", state, world);
      saved && world.rank() == 0)
    std::printf("epoch %" PRId64 ", loss %.6f, written by %" PRId64 " ranks\n", epoch, loss,
                saved->world);
  for (const int64_t last = epoch + 5; epoch < last;) {
    optimizer.zero_grad();
    auto output = model(x).square().mean();
    output.backward();
    optimizer.step();
    loss = output.item<double>();
    save(folder + "/checkpoint", ++epoch, state, world, {.keep = 2});
  }
  report(world, "a checkpoint is saved", !name_in_latest(folder + "/checkpoint").empty());
}

// Several models in one file: each under a name of its own.
void two_models(Group world, const std::string& folder, TheModel a, const torch::Tensor& x) {
  TheModel b, a2, b2;
  DistributedDataParallel alike(b, world);  // rank 0's values on all ranks
  save(folder + "/both", 1, all_of({named("a", state_of(a)), named("b", state_of(b))}), world);
  load(folder + "/both", all_of({named("a", state_of(a2)), named("b", state_of(b2))}), world);
  report(world, "two models in one file", a2(x).equal(a(x)) && b2(x).equal(b(x)));
}

// Warm start: strict=False, and a key renamed. What is not named must fit.
void warm_start(Group world, const std::string& folder, TheModel model) {
  TheModel other(3, "head");  // another one, which keeps its values
  load_weights(folder + "/weights", state_of(other), world, {.except = {"fc2.*", "head.*"}});
  report(world, "a part of the weights", other->fc1->weight.equal(model->fc1->weight));
  torch::nn::Sequential renamed(torch::nn::Linear(8, 16));
  load_weights(folder + "/weights", state_of(renamed), world,
               {.map = {"fc1.=0."}, .except = {"fc2.*"}});
  report(world, "weights by other names", renamed->parameters()[0].equal(model->fc1->weight));
}

int main(int argc, char** argv) try {
  if (argc < 2) throw UsageError("usage: saving_loading FOLDER [PYTHONS_WEIGHTS.pt]");
  Group world = init_process_group();
  torch::manual_seed(1);
  TheModel model;
  const auto x = torch::rand({4, 8});
  weights(world, argv[1], model, x);
  general_checkpoint(world, argv[1], x);
  two_models(world, argv[1], model, x);
  warm_start(world, argv[1], model);
  if (argc > 2) load_weights(argv[2], state_of(model), world);  // of torch.save: read as data
  if (argc > 2) report(world, "weights from Python", model->fc1->weight.eq(0.5).all().item<bool>());
  return 0;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
