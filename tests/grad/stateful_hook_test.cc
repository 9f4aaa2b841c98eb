// SPDX-License-Identifier: Apache-2.0
#include "trireme/grad/hooks/stateful_hook.h"

#include <gtest/gtest.h>

#include "tests/grad/small_net.h"
#include "trireme/grad/ddp.h"

namespace stateful_hook_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

// The sum in two calls: half of the bucket each.
class Halves final : public StatefulHook {
 public:
  using Break = std::function<void(int bucket, int call, at::Tensor& buffer)>;
  explicit Halves(Break break_off = {}) : break_(std::move(break_off)) {}
  void state(StateVisitor&) override {}

 private:
  struct Halved final : BucketReduction {
    Halved(Halves& hook, Group& group, const GradBucket& bucket, ReduceOp op)
        : hook(hook), group(group), buffer(bucket.buffer), bucket(bucket.index), op(op) {
      half = buffer.numel() / 2;
      work = group.all_reduce(buffer.narrow(0, 0, half), op);
    }
    bool advance() override {
      work.wait();
      if (hook.break_) hook.break_(bucket, call, buffer);
      if (call++ > 0) return false;
      work = group.all_reduce(buffer.narrow(0, half, buffer.numel() - half), op);
      return true;
    }
    Halves& hook;
    Group& group;
    at::Tensor buffer;
    int bucket, call = 0;
    ReduceOp op;
    int64_t half = 0;
    Work work;
  };
  std::unique_ptr<BucketReduction> start(Group& group, GradBucket& bucket, ReduceOp op) override {
    auto halved = std::make_unique<Halved>(*this, group, bucket, op);
    if (break_) break_(bucket.index, -1, bucket.buffer);
    return halved;
  }
  Break break_;
};

void train(Group g, std::shared_ptr<StatefulHook> hook, int steps = 2) {
  Small net = make(1), plain = make(1);
  DistributedDataParallel ddp(net, g,
                              {.bucket_bytes = 1, .first_bucket_bytes = 1, .hook = hook->hook()});
  DistributedDataParallel same(plain, g, {.bucket_bytes = 1, .first_bucket_bytes = 1});
  for (int step = 0; step < steps; ++step) {
    net->zero_grad();
    plain->zero_grad();
    (net->forward(input(4)) * (1 + g.rank())).sum().backward();
    (plain->forward(input(4)) * (1 + g.rank())).sum().backward();
    expect_gradients(*net, *plain);
  }
}

}  // namespace

TEST(grad_stateful_hook, a_reduction_of_two_calls_is_the_plain_one) {
  for (int n : {1, 2, 3}) run_threads(n, [](Group g) { train(g, std::make_shared<Halves>()); });
}

TEST(grad_stateful_hook, what_throws_on_one_rank_in_any_call_is_told_on_all) {
  for (int call : {-1, 0, 1}) {
    const auto said = what_ranks_throw(3, [call](Group g) {
      train(g, std::make_shared<Halves>([&](int bucket, int at, at::Tensor&) {
              if (g.rank() == 2 && bucket == 1 && at == call)
                throw std::runtime_error("no more codebooks");
            }));
    });
    EXPECT_EQ(said[2], "std: no more codebooks");
    for (size_t r : {0, 1}) {
      EXPECT_EQ(said[r].rfind("PeerLost: ", 0), 0u) << call << ": " << said[r];
      EXPECT_NE(said[r].find("the communication hook of rank 2 failed for bucket 1: no more "
                             "codebooks"),
                std::string::npos)
          << call << ": " << said[r];
    }
  }
}

TEST(grad_stateful_hook, another_tensor_in_the_bucket_s_place_is_told_on_all) {
  const auto said = what_ranks_throw(2, [](Group g) {
    train(g, std::make_shared<Halves>([&](int, int at, at::Tensor& buffer) {
            if (g.rank() == 0 && at == -1) buffer = buffer.narrow(0, 0, 2).clone();
          }));
  });
  const std::string what =
      "the communication hook replaced the tensor of bucket 0 or changed its shape";
  EXPECT_EQ(said[0].rfind("UsageError: " + what, 0), 0u) << said[0];
  EXPECT_EQ(said[1].rfind("PeerLost: ", 0), 0u) << said[1];
  EXPECT_NE(said[1].find(what), std::string::npos) << said[1];
}

}  // namespace stateful_hook_test
