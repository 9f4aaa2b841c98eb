// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "tests/grad/codec_rounds.h"
#include "tests/grad/small_net.h"
#include "tests/support/pretend_device/group.h"
#include "tests/support/pretend_device/seeds.h"
#include "tests/support/ranks.h"
#include "trireme/comm/wrappers/forwarding_backend.h"
#include "trireme/grad/compression/host_calls.h"
#include "trireme/tensor/device.h"

// Codecs on a device whose copies are late: what the CPU's give, to the last bit (but for the
// scales of signs), and gradient hooks that do not block.
namespace trireme::device_compression_test {
namespace {

using namespace trireme::testing;

constexpr int kRanks = 2;

/// What a rank has after each round: the result, and what it keeps.
using Trail = std::vector<at::Tensor>;
using Trails = std::map<int, Trail>;

struct Case {
  CompressionOptions options;
  ReduceOp op = ReduceOp::sum;
  at::ScalarType type = at::kFloat;
  int rounds = 4;
  Rounds::Change change = {};
  /// Of signs the CPU adds magnitudes in float32; PowerSGD's products have the device's order.
  double near() const {
    if (options.type == "powersgd") return type == at::kFloat ? 1e-4 : 1e-2;  // a last place
    return options.type == "sign" ? 1e-5 : 0;
  }
  std::string name() const {
    return options.type + " of " + c10::toString(type) + (op == ReduceOp::sum ? " sums" : " means");
  }
};

CommHook without_host_waits(CommHook hook) {
  return [hook](Group& group, GradBucket& bucket, ReduceOp op) {
    const pretend::NoHostWaits here;
    return hook(group, bucket, op);
  };
}

Trail trail(const Case& c, const Group& group, at::Device device) {
  Rounds r(group, hook_of(c.options), mixed_shapes(), c.op, c.type, 2500, device,
           without_host_waits);
  Trail seen;
  for (int round = 0; round < c.rounds; ++round) {
    for (size_t p = 0; p < r.parameters.size(); ++p) {
      at::Tensor& t = r.parameters[p].second;
      at::Tensor g = Rounds::gradient(group.rank(), round, p, t.sizes()).to(t.scalar_type());
      if (c.change) c.change(p, g);
      t.mutable_grad() = g.to(device);
    }
    r.reducer->open();
    for (size_t p = r.parameters.size(); p-- > 0;) r.reducer->ready(p);
    r.reducer->close();
    seen.push_back(r.result());
    seen.push_back(r.kept());
    seen.push_back(at::full({1}, r.hook->wire_bytes()));
  }
  return seen;
}

template <class Where>
Trails trails(const Case& c, const Where& where) {
  Trails all;
  std::mutex mutex;
  where([&](const Group& group, at::Device device) {
    Trail mine = trail(c, group, device);
    const std::lock_guard lock(mutex);
    all[group.rank()] = std::move(mine);
  });
  return all;
}

Trails on_the_cpu(const Case& c) {
  return trails(c, [](const auto& body) {
    run_threads(kRanks, [&](Group group) { body(group, at::kCPU); });
  });
}

void expect_same(const Trails& got, const Trails& want, const Case& c) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [rank, trail] : want) {
    const Trail& mine = got.at(rank);
    ASSERT_EQ(mine.size(), trail.size());
    for (size_t i = 0; i < trail.size(); ++i)
      EXPECT_TRUE(mine[i].allclose(trail[i], c.near(), c.near(), /*equal_nan=*/true))
          << c.name() << ", rank " << rank << ", round " << i / 3
          << (i % 3 == 0   ? ": another result"
              : i % 3 == 1 ? ": other error feedback"
                           : ": other bytes");
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (CompressionOptions options : every_codec(1)) {
    // The automatic choice tries each codec first; what it then takes depends on the clock.
    const int rounds = options.type == "auto" ? 6 : 4;
    all.push_back({options, ReduceOp::sum, at::kFloat, rounds, {}});
    all.push_back({options, ReduceOp::avg, at::kBFloat16, rounds, {}});
  }
  all.push_back({every_codec(0)[0], ReduceOp::avg, at::kHalf, 3, {}});
  return all;
}

}  // namespace

TEST(device_compression, every_codec_gives_the_cpus_bits_and_its_hook_does_not_block) {
  for (const Case& c : cases()) {
    const Trails want = on_the_cpu(c);
    pretend::for_some_seeds(1, [&] {
      expect_same(trails(c, [](const auto& body) { pretend::run_on_devices(kRanks, body); }), want,
                  c);
    });
  }
}

namespace {

struct Crossed {
  size_t pinned;  // bytes of the host's memory, for the rounds of all ranks
  bool error_feedback_is_there;
};

Crossed what_crosses(const CompressionOptions& options) {
  Crossed seen{};
  pretend::run_on_devices(kRanks, [&](Group group, at::Device device) {
    Rounds r(group, hook_of(options), {{300, 100}, {50}}, ReduceOp::sum, at::kFloat, 1 << 20,
             device, without_host_waits);
    group.barrier();
    const size_t before = pretend::pinned_bytes();
    group.barrier();
    for (int round = 0; round < 3; ++round) r.round(round);
    group.barrier();
    if (group.rank() == 0)
      seen = {pretend::pinned_bytes() - std::min(before, pretend::pinned_bytes()),
              r.hook->errors()->of(0).device() == device};
    group.barrier();
  });
  return seen;
}

}  // namespace

TEST(device_compression, all_codecs_but_the_automatic_choice_stay_on_the_device) {
  for (const CompressionOptions& options : every_codec(0)) {
    const bool stays = options.type != "auto";
    const Crossed seen = what_crosses(options);
    EXPECT_EQ(seen.error_feedback_is_there, stays) << options.type;
    if (stays)
      EXPECT_LT(seen.pinned, 4096u) << options.type;
    else
      EXPECT_GE(seen.pinned, 30000u * 4) << options.type;
  }
}

TEST(device_compression, error_feedback_on_the_device_changes_its_unit_and_is_refused_if_broken) {
  for (const char* type : {"int8", "topk", "sign", "powersgd"}) {
    CompressionOptions options = every_codec(0)[0];
    options.type = type;
    const auto said = what_ranks_throw(2, [&](Group group) {
      const at::Device device = pretend::device(group.rank());
      const CurrentDevice current(device);
      Rounds r(group, hook_of(options), mixed_shapes(), ReduceOp::sum, at::kFloat, 2500, device);
      r.round(0);
      const at::Tensor before = r.kept();
      EXPECT_GT(before.abs().sum().item<float>(), 0);
      r.hook->errors()->scale(0.25);
      EXPECT_TRUE(r.kept().equal(before * 0.25f)) << type;
      if (group.rank() == 1)
        r.hook->errors()->of(4).narrow(0, 17, 1).fill_(std::numeric_limits<float>::quiet_NaN());
      r.round(1);
      r.round(2);  // those with one call a round: the others hear of it in their next
    });
    EXPECT_EQ(said[1].rfind("NumericError: what rank 1 kept of the gradients of 'p4'", 0), 0u)
        << type << ": " << said[1];
    EXPECT_NE(said[0].find("what rank 1 kept of the gradients of 'p4'"), std::string::npos)
        << type << ": " << said[0];
  }
}

TEST(device_compression, a_gradient_that_is_not_finite_makes_its_bucket_nan_and_leaves_no_trace) {
  for (const CompressionOptions& options : every_codec(0)) {
    if (options.type == "auto") continue;
    const Case c{options, ReduceOp::sum, at::kFloat, 1, [](size_t p, at::Tensor& g) {
                   if (p == 2) g.view(-1)[5] = std::numeric_limits<float>::infinity();
                 }};
    const Trails want = on_the_cpu(c);
    EXPECT_TRUE(want.at(0)[0].isnan().any().item<bool>());
    EXPECT_EQ(want.at(0)[1].abs().sum().item<float>(), 0);
    expect_same(trails(c, [](const auto& body) { pretend::run_on_devices(kRanks, body); }), want,
                c);
  }
}

TEST(device_compression, the_automatic_choice_is_made_and_is_the_same_on_all_ranks) {
  std::map<int, std::string> chosen;
  std::mutex mutex;
  pretend::run_on_devices(kRanks, [&](Group group, at::Device device) {
    Rounds r(group, hook_of(every_codec(0).back()), mixed_shapes(), ReduceOp::avg, at::kFloat, 2500,
             device);
    for (int round = 0; round < 8; ++round) r.round(round);
    const std::lock_guard lock(mutex);
    chosen[group.rank()] = r.hook->describe();
  });
  EXPECT_EQ(chosen.at(0), chosen.at(1));
  EXPECT_NE(chosen.at(0).find("bucket 0: "), std::string::npos) << chosen.at(0);
}

TEST(device_compression, a_model_on_two_devices_or_one_that_has_moved_is_refused_by_name) {
  pretend::run_on_devices(1, [](Group group, at::Device device) {
    const auto parameter = [](at::Device where) {
      return at::zeros({40, 16}, at::TensorOptions().device(where)).requires_grad_();
    };
    EXPECT_EQ(outcome_of([&] {
                make_compression(every_codec()[0],
                                 {{"a", parameter(at::kCPU)}, {"b", parameter(device)}}, group);
              }),
              "UsageError: compression: parameter 'b' is on privateuseone:0, and 'a' on cpu: move "
              "the model to one device");
  });
  pretend::run_on_devices(2, [](Group group, at::Device device) {
    const auto parameter = [](at::Device where) {
      return at::zeros({40, 16}, at::TensorOptions().device(where)).requires_grad_();
    };
    const auto hook = make_compression(every_codec()[0], {{"a", parameter(at::kCPU)}}, group);
    std::vector<GradBucketPart> parts = {{0, "a", 0, parameter(device).detach()}};
    GradBucket bucket{0, true, parts[0].gradient.view({-1}), &parts};
    CommHook call = hook->hook();
    EXPECT_EQ(
        outcome_of([&] { call(group, bucket, ReduceOp::sum); }),
        "UsageError: compression: bucket 0 is on " + device.str() +
            ", and the hook was made for parameters on cpu: make it after the model is moved");
  });
}

namespace {

// As nccl's: nothing of the CPU's.
class DevicesAlone final : public detail::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  using ForwardingBackend::supports;
  bool supports(Collective op, at::ScalarType dtype, at::DeviceType device) const override {
    return device != at::kCPU && inner_->supports(op, dtype, device);
  }
  detail::Token post(const detail::Call& call) override {
    for (const at::Tensor* t : {call.input, call.output})
      check<UsageError>(!t || !t->defined() || !t->is_cpu(), "a tensor of the CPU");
    return inner_->post(call);
  }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members,
                                    const std::string& name) override {
    return std::make_shared<DevicesAlone>(inner_->subgroup(members, name));
  }
};

}  // namespace

TEST(device_compression, bytes_of_the_host_travel_through_a_group_that_takes_the_devices_alone) {
  pretend::for_some_seeds(4, [] {
    pretend::run_on_devices(kRanks, [](Group late, at::Device device) {
      Group group(std::make_shared<DevicesAlone>(
          std::shared_ptr<detail::Backend>(std::shared_ptr<void>(), late.get())));
      const float mine = static_cast<float>(group.rank() + 1);
      const at::Tensor sum = at::full({5}, mine);
      host_calls::all_reduce(group, sum, device).wait();
      EXPECT_TRUE(sum.equal(at::full({5}, 3.0f)));
      const at::Tensor own = at::full({3}, group.rank(), at::kByte),
                       all = at::zeros({6}, at::kByte);
      host_calls::all_gather(group, all, own, device).wait();
      EXPECT_TRUE(all.equal(at::cat({at::zeros({3}, at::kByte), at::ones({3}, at::kByte)})));
      const at::Tensor got = at::zeros({2}, at::kByte);
      host_calls::all_to_all(group, got, at::full({2}, 7 + group.rank(), at::kByte), device).wait();
      EXPECT_EQ(got[0].item<int>(), 7);
      EXPECT_EQ(got[1].item<int>(), 8);
    });
  });
}

}  // namespace trireme::device_compression_test
