// SPDX-License-Identifier: Apache-2.0
// PyTorch's tutorial "Writing Distributed Applications": messages between two ranks, collectives in
// a group, a ring all-reduce by hand, training with gradients averaged by hand, on the backend that
// you name (local, gloo, mpi, hybrid). Python's tutorial passes the whole tensor around its ring;
// this one passes a part at a time, as bandwidth asks for.
//   trireme run --nproc-per-node 4 writing_distributed_applications [BACKEND]
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>

using trireme::Group;
using trireme::Work;

void point_to_point(Group world) {
  auto tensor = torch::zeros({1});
  if (world.rank() == 0) world.send(tensor += 1, 1).wait();  // blocking: wait() at once
  if (world.rank() == 1) world.recv(tensor, 0).wait();
  if (world.rank() == 1) std::printf("Rank 1 has data %g\n", tensor.item<double>());

  Work request;  // non-blocking: something else can be done before wait()
  if (world.rank() == 0) request = world.isend(tensor += 1, 1);
  if (world.rank() == 1) request = world.irecv(tensor, 0);
  request.wait();  // only now may rank 0 write to the tensor, and rank 1 read it
  if (world.rank() == 1) std::printf("Rank 1 has data %g\n", tensor.item<double>());
}

void collectives(Group world) {
  Group pair = world.new_group({0, 1});  // every rank of the world makes the call
  auto tensor = torch::ones({1});
  if (pair) pair.all_reduce(tensor, trireme::ReduceOp::sum).wait();
  std::printf("Rank %d has data %g of its group\n", world.rank(), tensor.item<double>());

  auto mine = torch::full({1}, world.rank());
  std::vector<torch::Tensor> all(world.size());
  for (auto& t : all) t = torch::zeros({1}, torch::kLong);
  world.all_gather(all, mine).wait();
  world.broadcast(mine, 0).wait();  // everybody has rank 0's now
  if (world.rank() == world.size() - 1)
    std::printf("Gathered %s, broadcast %d\n",
                std::to_string(torch::cat(all).sum().item<int>()).c_str(), mine.item<int>());
}

// In size - 1 rounds each part is summed on its way around; in as many more it goes to all.
void ring_all_reduce(Group world, torch::Tensor tensor) {
  const int size = world.size(), rank = world.rank();
  const int left = (rank + size - 1) % size, right = (rank + 1) % size;
  auto parts = tensor.tensor_split(size);
  for (int round = 0; round < 2 * (size - 1); ++round) {
    auto& out = parts[(rank - round + 2 * size) % size];
    auto& in = parts[(rank - round - 1 + 2 * size) % size];
    auto received = torch::empty_like(in);
    Work sent = world.isend(out, right);
    world.recv(received, left).wait();
    sent.wait();
    round < size - 1 ? in.add_(received) : in.copy_(received);
  }
}

void average_gradients(Group world, torch::nn::Module& model) {
  for (auto& p : model.parameters()) {
    ring_all_reduce(world, p.grad().view(-1));
    p.mutable_grad().div_(world.size());
  }
}

void distributed_sgd(Group world) {
  torch::manual_seed(1234);
  torch::nn::Linear model(784, 10);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  // The same parts on every rank; each rank trains on its own.
  const size_t each = 512 / world.size();
  const auto parts = trireme::random_split(each * world.size(), std::vector(world.size(), each), 1);
  trireme::Subset partition(trireme::SourceDataset(trireme::make_digits()), parts[world.rank()]);
  auto loader = torch::data::make_data_loader(partition, 128 / world.size());
  for (int epoch = 0; epoch < 5; ++epoch) {
    double epoch_loss = 0;
    for (auto& [data, target] : *loader) {
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(model(data.flatten(1)), target);
      epoch_loss += loss.item<double>() / 4;
      loss.backward();
      average_gradients(world, *model);
      optimizer.step();
    }
    std::printf("Rank %d, epoch %d: %.4f\n", world.rank(), epoch, epoch_loss);
  }
}

int main(int argc, char** argv) try {
  Group world = trireme::init_process_group({.backend = argc > 1 ? argv[1] : "local"});
  if (world.size() < 2) throw trireme::UsageError("this program wants two ranks or more");
  point_to_point(world);
  collectives(world);
  auto by_hand = torch::arange(10.) * (world.rank() + 1), by_call = by_hand.clone();
  ring_all_reduce(world, by_hand);
  world.all_reduce(by_call).wait();
  std::printf("Rank %d: the ring's sum is all_reduce's: %s\n", world.rank(),
              by_hand.equal(by_call) ? "yes" : "no");
  distributed_sgd(world);
  return 0;
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
