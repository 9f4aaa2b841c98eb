// SPDX-License-Identifier: Apache-2.0
// Servers and trainers that are processes, and are killed.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/rpc/server/recommender.h"
#include "tests/rpc/server/servers.h"
#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "trireme/base/philox.h"
#include "trireme/store/server/tcp_server.h"
#include "trireme/store/unix_store.h"
#include "trireme/tensor/host_data.h"

namespace trireme::rpc_server_processes_test {
namespace {

using namespace rpc_server_test;
using testing::Command;

class Processes {
 public:
  Processes(int servers, int staleness, int save_every)
      : staleness_(staleness), every_(save_every), running_(static_cast<size_t>(servers)) {
    for (int s = 0; s < servers; ++s) start_server(s);
  }
  void start_server(int s) {
    running_[static_cast<size_t>(s)] =
        start({"server", name_, "server" + std::to_string(s), folder_ / std::to_string(s), "2",
               std::to_string(staleness_), std::to_string(every_)});
    EXPECT_TRUE(running_[static_cast<size_t>(s)]->wait_for("ready"));
  }
  std::unique_ptr<Command> trainer(int rank, int64_t steps, const std::string& what) {
    return start({"trainer", name_, std::to_string(rank), std::to_string(running_.size()),
                  std::to_string(steps), what});
  }
  Command& server(int s) { return *running_[static_cast<size_t>(s)]; }
  size_t servers() const { return running_.size(); }

 private:
  std::unique_ptr<Command> start(testing::Arguments words) {
    words.insert(words.begin(), testing::build_path("/tests/parameter_server_peer"));
    return std::make_unique<Command>(
        words,
        testing::CommandOptions{{{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}}, {}});
  }

  PrivateFolder folder_;
  const std::string name_ = "rpc-server-test " + folder_.path();
  StoreServer store_{{}, unix_store_endpoint(name_)};
  const int staleness_, every_;
  std::vector<std::unique_ptr<Command>> running_;
};

/// Behind "loss " or "bits " in what a trainer has printed.
std::string word_after(const std::string& text, const std::string& mark) {
  const auto at = text.find(mark);
  return at == text.npos ? ""
                         : text.substr(at + mark.size(), text.find('\n', at) - at - mark.size());
}

}  // namespace

TEST(rpc_server_processes,
     a_killed_synchronous_server_comes_back_and_the_bits_are_those_of_a_calm_run) {
  constexpr int64_t kSteps = 40;
  std::string wanted;
  {
    Servers calm(
        1, {.workers = 2, .optimizer = [](NamedTensors p) { return make_adamw(std::move(p)); }});
    const auto outcomes = calm.workers(2, [&](int rank, rpc::Worker& me) {
      Net net = net_of(1);
      rpc::ParameterClient client(me, named_parameters(*net), calm.client(rank));
      while (client.steps() < kSteps) {
        drop_gradients(*net);
        loss_of(net, batch_of(2 * client.steps() + rank)).backward();
        client.step(0.01);
      }
      const at::Tensor weights = flat(*net);
      if (rank == 0)
        wanted = fmt::format("{:016x}", stable_hash(std::string_view(host_bits<const char>(weights),
                                                                     weights.nbytes())));
    });
    ASSERT_EQ(outcomes, nobody_threw(2));
  }
  Processes all(2, -1, 5);
  auto first = all.trainer(0, kSteps, "net"), second = all.trainer(1, kSteps, "net");
  ASSERT_TRUE(first->wait_for("step 17\n")) << first->err;
  all.server(1).send(SIGKILL);
  EXPECT_EQ(all.server(1).finish(), 128 + SIGKILL);
  all.start_server(1);
  EXPECT_EQ(first->finish(), 0) << first->err;
  EXPECT_EQ(second->finish(), 0) << second->err;
  EXPECT_EQ(word_after(first->out, "bits "), wanted);
  EXPECT_EQ(word_after(second->out, "bits "), wanted);
  EXPECT_NE(first->err.find("has met its servers again"), std::string::npos) << first->err;
  for (int s : {0, 1}) EXPECT_EQ(all.server(s).finish(), 0) << all.server(s).err;
}

TEST(rpc_server_processes, a_recommender_learns_as_one_process_does_though_a_server_is_killed) {
  constexpr int64_t kSteps = 250;
  const double wanted = ratings_learnt_alone(kSteps, 2).second;
  Processes all(2, 4, 10);
  auto first = all.trainer(0, kSteps, "ratings"), second = all.trainer(1, kSteps, "ratings");
  ASSERT_TRUE(first->wait_for("step 100\n")) << first->err;
  all.server(0).send(SIGKILL);
  EXPECT_EQ(all.server(0).finish(), 128 + SIGKILL);
  all.start_server(0);
  EXPECT_EQ(first->finish(), 0) << first->err;
  EXPECT_EQ(second->finish(), 0) << second->err;
  EXPECT_NE(first->err.find("has met its servers again"), std::string::npos) << first->err;
  const double got = std::strtod(word_after(first->out, "loss ").c_str(), nullptr);
  EXPECT_LE(std::abs(got / wanted - 1), 0.02) << got << " and " << wanted;
}

TEST(rpc_server_processes, a_killed_trainer_is_left_out) {
  Processes all(1, -1, 1000);
  auto first = all.trainer(0, 60, "net"), second = all.trainer(1, 1000000, "net");
  ASSERT_TRUE(first->wait_for("step 10\n")) << first->err;
  second->send(SIGKILL);
  EXPECT_EQ(first->finish(), 0) << first->err;
  EXPECT_EQ(all.server(0).finish(), 0);
  EXPECT_NE(all.server(0).err.find("worker 1 ('trainer1') is lost"), std::string::npos)
      << all.server(0).err;
}

}  // namespace trireme::rpc_server_processes_test
