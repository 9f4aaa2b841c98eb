// SPDX-License-Identifier: Apache-2.0
// A server or a trainer as a process of its own, for tests that kill them:
//   server STORE NAME FOLDER WORKERS STALENESS SAVE_EVERY      (staleness -1: synchronous)
//   trainer STORE RANK SERVERS STEPS net|ratings
// A trainer prints each step, and at the end the loss on held-out data and a hash of the weights.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "tests/rpc/server/recommender.h"
#include "trireme/base/philox.h"
#include "trireme/channel/local/hub.h"
#include "trireme/rpc/server/parameter_server.h"
#include "trireme/rpc/server/sharded_embedding.h"
#include "trireme/store/tcp_store.h"
#include "trireme/store/unix_store.h"
#include "trireme/tensor/host_data.h"

using namespace trireme;
using namespace trireme::rpc_server_test;

namespace {

constexpr Duration kPlenty = std::chrono::seconds(60);

rpc::Worker join(const std::string& store, const std::string& name,
                 std::vector<rpc::Offer> offers = {}) {
  rpc::Options options;
  options.name = name;
  options.offers = std::move(offers);
  options.store = TcpStore::connect(unix_store_endpoint(store), {}, Deadline::after(kPlenty));
  options.roads = {{"local", [](const channel::Peer& self, channel::Accept accept) {
                      return std::shared_ptr<channel::Hub>(
                          channel::local_hub({.self = self, .accept = std::move(accept)}));
                    }}};
  return rpc::init(options);
}

void serve(const std::vector<std::string>& words) {
  rpc::ServerOptions options;
  options.folder = words.at(4);
  options.workers = std::stoi(words.at(5));
  if (const int staleness = std::stoi(words.at(6)); staleness >= 0) options.staleness = staleness;
  options.save_every = std::stoi(words.at(7));
  if (options.staleness)
    options.optimizer = [](NamedTensors p) {
      return make_sgd(std::move(p), {}, {{"*", std::nullopt, kLr / kRowLr}});
    };
  else
    options.optimizer = [](NamedTensors p) { return make_adamw(std::move(p)); };
  rpc::ParameterServer server(options);
  auto me = join(words.at(2), words.at(3), {server.offer()});
  std::printf("ready\n");
  std::fflush(stdout);
  if (!server.wait(Deadline::after(kPlenty))) std::exit(3);
  me.shutdown({.graceful = false});
}

void train(const std::vector<std::string>& words) {
  const int rank = std::stoi(words.at(3)), servers = std::stoi(words.at(4));
  const int64_t steps = std::stoll(words.at(5));
  const bool ratings = words.at(6) == "ratings";
  auto me = join(words.at(2), "trainer" + std::to_string(rank));
  rpc::ClientOptions options;
  options.rank = rank;
  options.deadline = kPlenty;
  for (int s = 0; s < servers; ++s) options.servers.push_back("server" + std::to_string(s));
  if (ratings) options.tables = {likes()};
  Net net = ratings ? dense_part() : net_of(1);
  rpc::ParameterClient client(me, named_parameters(*net), options);
  std::optional<rpc::ShardedEmbedding> table;
  if (ratings) table.emplace(client, "likes");
  while (client.steps() < steps) {
    const int64_t step = client.steps();
    std::printf("step %ld\n", static_cast<long>(step));
    std::fflush(stdout);
    drop_gradients(*net);
    if (ratings)
      loss_of_ratings(net, ratings_of(2 * step + rank), *table).backward();
    else
      loss_of(net, batch_of(2 * step + rank)).backward();
    client.step(ratings ? kRowLr / 2 : 0.01);
  }
  client.pull();
  const double loss = ratings ? held_out_ratings(net, *table) : held_out(net);
  const at::Tensor weights = flat(*net);
  const std::string_view bytes(host_bits<const char>(weights), weights.nbytes());
  std::printf("loss %.17g\nbits %016lx\n", loss, static_cast<unsigned long>(stable_hash(bytes)));
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv, argv + argc);
  words.at(1) == "server" ? serve(words) : train(words);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
