// SPDX-License-Identifier: Apache-2.0
// A worker that offers all that there is, and another that sends what it likes: every call is
// answered or given up, nobody else notices, and nothing is left when it is gone.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "tests/fuzz/mutate.h"
#include "tests/rpc/workers.h"
#include "tests/support/captured_log.h"
#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/rpc/actor/actor.h"
#include "trireme/rpc/autograd/context.h"
#include "trireme/rpc/object/rref.h"
#include "trireme/rpc/server/parameter_server.h"
#include "trireme/rpc/wire/messages.h"

namespace trireme::fuzz_worker_test {
namespace {

using namespace rpc_test;

struct Sim {
  explicit Sim(double first) : value(first) {}
  double add(int64_t more) { return value += static_cast<double>(more); }
  double value;
};
TRIREME_ACTOR(Sim, double);
TRIREME_REMOTE(sim_add, &Sim::add);

struct Box {
  explicit Box(int64_t number) : value(number) {}
  int64_t get() const { return value; }
  int64_t value;
};
TRIREME_REMOTE_CLASS(Box, int64_t);
TRIREME_REMOTE(get_box, &Box::get);
TRIREME_REMOTE(echo, [](int x) { return x; });
TRIREME_REMOTE(sum, [](const std::vector<double>& all) {
  double total = 0;
  for (const double one : all) total += one;
  return total;
});

/// Arguments by the name of their method, as another program wrote them (tests/formats).
std::map<std::string, std::string> written_arguments() {
  const std::string all = read_file(testing::source_path("/tests/formats/rpc-calls-v1.bin"));
  std::map<std::string, std::string> values;
  size_t at = 0;
  const auto taken = [&] {
    uint32_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof length);
    at += sizeof length + length;
    return all.substr(at - length, length);
  };
  while (at < all.size()) {
    const std::string name = taken();
    values[name] = taken();
  }
  values["new Box"] = values["new"];
  values["Box::get_box"] = values["trireme.rref.fetch"].substr(0, 24);
  values["actor Sim"] = values["actor"];
  for (const char* method : {"Sim.sim_add", "actor Sim: is ready", "actor Sim: is waited for"})
    values[method] = values["actor's message"];
  values["echo"] = std::string(4, '\0');
  values["sum"] = std::string(8, '\0');
  return values;
}

constexpr uint64_t kFirst = 1'000'000;  // of the numbers of what is put in

}  // namespace

TEST(fuzz_torch_worker, answers_others_whatever_one_of_them_sends) {
  testing::CapturedLog log;
  Job job;
  std::mutex mutex;
  std::vector<rpc::wire::MethodName> methods;
  std::atomic<int> answered{0};
  job.net->intercept("server0", [&](channel::Message& message) {
    const auto said = rpc::wire::decode(message.bytes).message;
    if (const auto* hello = std::get_if<rpc::wire::Hello>(&said)) {
      std::lock_guard lock(mutex);
      methods = hello->methods;
    }
    uint64_t id = 0;
    if (const auto* reply = std::get_if<rpc::wire::Reply>(&said)) id = reply->id;
    if (const auto* failure = std::get_if<rpc::wire::Failure>(&said)) id = failure->id;
    if (const auto* began = std::get_if<rpc::wire::Began>(&said)) return began->id < kFirst;
    answered += id >= kFirst;
    return id < kFirst;
  });
  const rpc::ParameterServer parameters({.workers = 2});
  auto server = job.start(
      "server0", {rpc::offer<echo, sum>(), rpc::offer_objects<Box, get_box>(),
                  rpc::offer_actor<Sim, sim_add>(), rpc::autograd::offer(), parameters.offer()});
  auto honest = job.start("honest");
  const rpc::Peer safe = honest.peer("server0");
  const auto arguments = written_arguments();
  std::vector<std::string> seeds;
  for (const auto& [name, value] : arguments) seeds.push_back(value);
  std::mt19937_64 random(7);
  const int rounds = std::getenv("TRIREME_SOAK") ? 100 : 4;
  int sent = 0;
  for (int round = 0; round < rounds; ++round) {
    auto mallory = job.start("mallory" + std::to_string(round), {rpc::autograd::offer()});
    mallory.peer("server0");
    for (int i = 0; i < 500; ++i) {
      rpc::wire::Call call;
      call.method = static_cast<uint32_t>(random() % methods.size());
      call.id = kFirst + static_cast<uint64_t>(i);
      call.budget_us = 200'000;
      if (random() % 4 == 0) call.context = rpc::wire::Context{2, 1 + random() % 3, random() % 5};
      const auto found = arguments.find(methods[call.method].name);
      ASSERT_NE(found, arguments.end()) << methods[call.method].name << " has no seed";
      std::string bytes = found->second;
      if (random() % 3) bytes = fuzz::mutated(bytes, seeds, random);
      job.net->put_in(mallory.name(), "server0", {rpc::wire::encode(call) + bytes, {}});
      ++sent;
      if (i % 50 == 0) {
        ASSERT_EQ(safe.with(20s).sync<echo>(i), i);
      }
    }
    job.net->kill(mallory.name());
    mallory.shutdown({.graceful = false, .deadline = Duration::zero()});
  }
  EXPECT_EQ(safe.sync<echo>(-1), -1);
  EXPECT_GT(answered, sent / 4);
  EXPECT_TRUE(comes_about([&] {
    const auto now = rpc::detail::Access::objects(server)->counts();
    return now.owned + now.held + now.passed + now.marks == 0 &&
           rpc::autograd::contexts(server) == 0;
  }));
  EXPECT_LE(server.threads(), 6);
  honest.shutdown({.graceful = false, .deadline = kPlenty});
  EXPECT_NO_THROW(server.shutdown({.graceful = false, .deadline = kPlenty}));
}

}  // namespace trireme::fuzz_worker_test
