// SPDX-License-Identifier: Apache-2.0
// A recommender whose embedding and whose network live at servers: server.cc says how to start it.
// What it learns is drawn here: how much users like items, from hidden tastes of both.
#include <torch/torch.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <cstdlib>
#include <string>

constexpr int64_t kUsers = 2000, kItems = 3000, kWidth = 16, kSteps = 400;

// Who rates what, and how. The same number always gives the same ratings.
struct Ratings {
  explicit Ratings(uint64_t number, int64_t count = 256) {
    auto u = torch::empty({count}), i = torch::empty({count}), noise = torch::empty({count});
    trireme::uniform_(u, 3 * number, 0, kUsers);
    trireme::uniform_(i, 3 * number + 1, 0, 1);
    trireme::normal_(noise, 3 * number + 2, 0, 0.3);
    users = u.to(torch::kLong).clamp_max(kUsers - 1);
    items = (i * i * kItems).to(torch::kLong).clamp_max(kItems - 1);  // some are popular
    stars = torch::sin(users * 0.37) * torch::cos(items * 0.21) + noise;
    items += kUsers;  // one table has the rows of both
  }
  torch::Tensor users, items, stars;
};

struct NetImpl : torch::nn::Module {
  torch::nn::Sequential layers{register_module(
      "layers", torch::nn::Sequential(torch::nn::Linear(2 * kWidth, 64), torch::nn::ReLU(),
                                      torch::nn::Linear(64, 1)))};
};
TORCH_MODULE(Net);

torch::Tensor loss(Net& net, const trireme::rpc::ShardedEmbedding& table, const Ratings& r) {
  const auto users = table(r.users), items = table(r.items);
  const auto stars =
      net->layers->forward(torch::cat({users, items}, 1)).squeeze(1) + (users * items).sum(1);
  return torch::mse_loss(stars, r.stars);
}

double held_out(Net& net, const trireme::rpc::ShardedEmbedding& table) {
  torch::NoGradGuard no_grad;
  return loss(net, table, Ratings(1'000'000, 4096)).item<double>();
}

int main(int argc, char** argv) try {
  trireme::rpc::ClientOptions options;
  for (int s = 0; s < (argc > 1 ? std::atoi(argv[1]) : 1); ++s)
    options.servers.push_back("server" + std::to_string(s));
  const int trainers = argc > 2 ? std::atoi(argv[2]) : 1;
  if (const char* number = std::getenv("TRIREME_ROLE_RANK")) options.rank = std::atoi(number);
  options.tables = {{"likes", kUsers + kItems, kWidth, torch::kFloat, 0.2}};

  auto me = trireme::rpc::init({});
  Net net;
  {
    trireme::rpc::ParameterClient client(me, trireme::named_parameters(*net), options);
    trireme::rpc::ShardedEmbedding table(client, "likes");
    const double first = held_out(net, table);
    while (client.steps() < kSteps) {  // which goes back where servers do
      net->zero_grad();
      const auto batch = static_cast<uint64_t>(client.steps() * trainers + options.rank);
      loss(net, table, Ratings(batch)).backward();
      client.step(0.1);
    }
    if (options.rank == 0) std::printf("held-out loss %.4f -> %.4f\n", first, held_out(net, table));
  }
  me.shutdown();
} catch (const trireme::Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
