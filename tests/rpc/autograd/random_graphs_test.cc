// SPDX-License-Identifier: Apache-2.0
// Random programs over three workers: their gradients are those of the same programs in one thread.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/rpc/autograd/workers.h"

namespace trireme::rpc_autograd_random_test {
namespace {

using namespace rpc_test;
using rpc::Future;
using Tensors = std::vector<Tensor>;

constexpr int kWorkers = 3;

struct Service;
/// All of them; a program goes through them in this process, too.
using Services = std::vector<std::shared_ptr<Service>>;

/// How a piece of a program has another worker do a piece.
enum class How { waits, continues, meanwhile, answered_later };

struct Service {
  int number = 0;
  Tensors parameters;  // vectors of 3 numbers
  std::function<rpc::Peer(int to)> peer;

  Tensors piece(uint64_t seed, int depth, const Tensors& inputs) const;
  Future<Tensors> piece_later(uint64_t seed, int depth, const Tensors& inputs) const;
};
TRIREME_REMOTE(piece, &Service::piece);
TRIREME_REMOTE(piece_later, &Service::piece_later);

int draw(std::mt19937_64& random, int below) {
  return std::uniform_int_distribution<int>(0, below - 1)(random);
}

Tensors sines(Tensors tensors) {
  for (Tensor& tensor : tensors) tensor = tensor.sin();
  return tensors;
}

/// A piece of a program: `call` is how others are called, `text` what is said of it where it fails.
using Call =
    std::function<std::function<Tensors()>(int to, uint64_t seed, int depth, Tensors, How)>;
Tensors run_piece(const Service& at, uint64_t seed, int depth, Tensors pool, const Call& call,
                  std::string* text) {
  std::mt19937_64 random(seed);
  const std::string indent(static_cast<size_t>(2 * (3 - depth)), ' ');
  const auto any = [&]() -> const Tensor& {
    return pool[static_cast<size_t>(draw(random, static_cast<int>(pool.size())))];
  };
  const auto say = [&](const std::string& what) {
    if (text) *text += indent + "worker " + std::to_string(at.number) + ": " + what + "\n";
  };
  std::function<Tensors()> pending;
  const auto take_pending = [&] {
    if (!pending) return;
    for (Tensor& tensor : std::exchange(pending, nullptr)()) pool.push_back(tensor);
    say("takes what it waited for");
  };
  const int steps = 2 + draw(random, 5);
  for (int step = 0; step < steps; ++step) {
    switch (draw(random, depth > 0 ? 10 : 7)) {
      case 0:
        pool.push_back(any() * any());
        say("product");
        break;
      case 1:
        pool.push_back(0.5 * (any() + any()));
        say("sum");
        break;
      case 2:
        pool.push_back(any().tanh());
        say("tanh");
        break;
      case 3:
      case 4: {
        const int which = draw(random, static_cast<int>(at.parameters.size()));
        pool.push_back(any() * at.parameters[static_cast<size_t>(which)]);
        say("times parameter " + std::to_string(which));
        break;
      }
      case 5:
        pool.push_back(any().detach());
        say("detach");
        break;
      case 6:
        pool.push_back((any() * 1.5).sin_());
        say("in place");
        break;
      default: {
        take_pending();
        const int to = draw(random, kWorkers);
        Tensors arguments;
        const int count = 1 + draw(random, 3);
        for (int i = 0; i < count; ++i) arguments.push_back(any());
        if (count > 1 && draw(random, 3) == 0) arguments.back() = arguments.front();
        const uint64_t inner = random();
        const How how = static_cast<How>(draw(random, 4));
        say("calls worker " + std::to_string(to) + ", way " +
            std::to_string(static_cast<int>(how)));
        pending = call(to, inner, depth - 1, std::move(arguments), how);
        if (how != How::meanwhile) take_pending();
        break;
      }
    }
  }
  take_pending();
  Tensors results;
  const int count = 1 + draw(random, 3);
  for (int i = 0; i < count; ++i) results.push_back(any());
  say("returns " + std::to_string(count));
  return results;
}

/// Over workers.
Call remote_call(const Service& at) {
  return [&at](int to, uint64_t seed, int depth, Tensors arguments, How how) {
    const rpc::Peer peer = at.peer(to);
    auto future = std::make_shared<Future<Tensors>>(
        how == How::answered_later ? peer.async<piece_later>(seed, depth, arguments)
                                   : peer.async<piece>(seed, depth, arguments));
    if (how == How::continues) *future = future->then(sines);
    return std::function<Tensors()>([future] { return future->get(); });
  };
}

/// In this thread.
Call local_call(const Services& services, std::string* text) {
  return [&services, text](int to, uint64_t seed, int depth, Tensors arguments, How how) {
    const Service& there = *services[static_cast<size_t>(to)];
    Tensors results =
        run_piece(there, seed, depth, std::move(arguments), local_call(services, text), text);
    if (how == How::continues || how == How::answered_later) results = sines(std::move(results));
    return std::function<Tensors()>([results] { return results; });
  };
}

Tensors Service::piece(uint64_t seed, int depth, const Tensors& inputs) const {
  return run_piece(*this, seed, depth, inputs, remote_call(*this), nullptr);
}

// Answers later: what it computes goes through a call of itself, and on after that.
Future<Tensors> Service::piece_later(uint64_t seed, int depth, const Tensors& inputs) const {
  return peer(number).async<struct piece>(seed, depth, inputs).then(sines);
}

class rpc_autograd_random : public ::testing::Test {
 protected:
  static constexpr const char* kNames[kWorkers] = {"worker0", "worker1", "worker2"};

  void SetUp() override {
    std::mt19937_64 random(5);
    std::uniform_real_distribution<double> number(-1, 1);
    for (int i = 0; i < kWorkers; ++i) {
      auto service = std::make_shared<Service>();
      service->number = i;
      for (int k = 0; k < 2; ++k)
        service->parameters.push_back(leaf({number(random), number(random), number(random)}));
      services.push_back(service);
      workers.push_back(
          start_with_autograd(job, kNames[i], {rpc::offer<piece, piece_later>(service)}));
    }
    for (int i = 0; i < kWorkers; ++i)
      services[static_cast<size_t>(i)]->peer = [me = &workers[static_cast<size_t>(i)]](int to) {
        return me->peer(kNames[to]);
      };
    inputs = {leaf({0.3, -0.7, 0.9}), leaf({-0.2, 0.5, 0.1})};
  }
  void TearDown() override {
    for (const auto& worker : workers)
      EXPECT_TRUE(comes_about([&] { return rpc::autograd::contexts(worker) == 0; }));
    for (const auto& service : services) service->peer = nullptr;
  }

  /// The losses of a program: each of one number, not of all that it returned.
  static Tensors losses_of(const Tensors& results, uint64_t seed) {
    std::mt19937_64 random(seed + 1);
    Tensors losses;
    for (const Tensor& result : results)
      if (result.requires_grad() && (losses.empty() || draw(random, 2) == 0))
        losses.push_back(result.sum());
    return losses;
  }

  Tensors all_parameters() const {
    Tensors all = inputs;
    for (const auto& service : services)
      all.insert(all.end(), service->parameters.begin(), service->parameters.end());
    return all;
  }
  const rpc::Worker& owner(size_t parameter) const {
    return workers[parameter < 2 ? 0 : (parameter - 2) / 2];
  }

  /// False: told with the seed and the program.
  void one_program(uint64_t seed) {
    const Service& first = *services[0];
    std::string text;
    const Tensors there = run_piece(first, seed, 3, inputs, local_call(services, &text), &text);
    const Tensors local_losses = losses_of(there, seed);
    if (local_losses.empty()) return;
    ++programs;
    Tensors all = all_parameters();
    const auto wanted = torch::autograd::grad(local_losses, all, {}, /*retain_graph=*/false,
                                              /*create_graph=*/false, /*allow_unused=*/true);
    const bool accumulate = seed % 5 == 0, twice = seed % 7 == 0;
    SCOPED_TRACE("seed " + std::to_string(seed) + (accumulate ? ", accumulated" : "") +
                 (twice ? ", twice" : "") + "\n" + text);
    for (Tensor& parameter : all) parameter.mutable_grad() = Tensor();
    Context context(workers[0]);
    const Tensors results = run_piece(first, seed, 3, inputs, remote_call(first), nullptr);
    const Tensors losses = losses_of(results, seed);
    ASSERT_EQ(losses.size(), local_losses.size());
    for (size_t i = 0; i < losses.size(); ++i)
      ASSERT_EQ(losses[i].item<double>(), local_losses[i].item<double>());
    if (twice) context.backward(losses, {.retain_graph = true, .accumulate = accumulate});
    context.backward(losses, {.accumulate = accumulate});
    for (size_t i = 0; i < all.size(); ++i) {
      const Tensor got = accumulate ? all[i].grad() : gradient_at(owner(i), context.id(), all[i]);
      const Tensor want = wanted[i].defined() && twice ? 2 * wanted[i] : wanted[i];
      ASSERT_TRUE(near(got, want)) << "parameter " << i << " got " << got << " and not " << want;
    }
  }

  Job job;
  Services services;
  std::vector<rpc::Worker> workers;
  Tensors inputs;
  int programs = 0;
};

}  // namespace

TEST_F(rpc_autograd_random, programs_over_three_workers_have_the_gradients_of_one_thread) {
  const char* const only = std::getenv("TRIREME_SEED");
  const uint64_t first = only ? std::strtoull(only, nullptr, 10) : 1;
  const uint64_t last = only ? first : std::getenv("TRIREME_SOAK") ? 30'000 : 1'100;
  for (uint64_t seed = first; seed <= last && !HasFatalFailure(); ++seed) one_program(seed);
  if (!only) {
    EXPECT_GE(programs, 1'000);
  }
}

}  // namespace trireme::rpc_autograd_random_test
