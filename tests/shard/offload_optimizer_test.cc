// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/offload/offload_optimizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <condition_variable>
#include <mutex>

#include "tests/optim/papers.h"
#include "tests/optim/state_visitors.h"
#include "tests/shard/offload_child.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/trace.h"
#include "trireme/tensor/live_bytes.h"

namespace trireme::testing::offload_optimizer_test {
namespace {

/// The six of papers.h, and the two with torch twins; SGD with and without state.
std::map<std::string, Make> all_optimizers() {
  auto all = every();
  all["SGD"] = [](NamedTensors p) { return make_sgd(std::move(p), {}, kGroups); };
  all["SGD momentum"] = [](NamedTensors p) {
    return make_sgd(std::move(p), {.momentum = 0.9}, kGroups);
  };
  all["AdamW"] = [](NamedTensors p) { return make_adamw(std::move(p), {}, kGroups); };
  for (const char* name : {"AdamW", "LAMB"})
    all[std::string(name) + " of masters"] = [inner = all[name]](NamedTensors p) {
      return with_master_weights(std::move(p), inner);
    };
  return all;
}

NamedTensors start_for(const std::string& name) {
  return start(name.ends_with("masters") ? torch::kBFloat16 : torch::kFloat);
}

void copy_gradients(const NamedTensors& from, NamedTensors& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const auto& g = from[i].second.grad();
    to[i].second.mutable_grad() = g.defined() ? g.clone() : g;
  }
}

void expect_same(const NamedTensors& a, const NamedTensors& b, const std::string& what) {
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << what << ' ' << a[i].first;
}

OffloadOptions small(const PrivateFolder& folder, int64_t sub_group_bytes = 200) {
  return {.file = {.folder = folder.path(), .block_size = 4096},
          .sub_group_bytes = sub_group_bytes};
}

TEST(shard_offload_optimizer, ten_steps_and_the_state_have_the_bits_of_the_inner_optimizer) {
  PrivateFolder folder;
  for (const auto& [name, make] : all_optimizers())
    for (int64_t limit : {1, 200, 1 << 20})
      for (int way = 0; way < (limit == 200 ? 5 : 1); ++way) {
        OffloadOptions options = small(folder, limit);
        options.pipeline_read = way != 1 && way != 3;
        options.pipeline_write = way != 2 && way != 3;
        options.buffer_count = way == 3 ? 1 : way == 4 ? 2 : 3;
        options.file.engine = way % 2 ? OffloadEngine::threads : OffloadEngine::automatic;
        const std::string what = name + ", " + std::to_string(limit) + ", " + std::to_string(way);
        NamedTensors plain = start_for(name), away = start_for(name);
        auto inner = make(plain);
        auto optimizer = offload_optimizer(away, make, options);
        if (name != "SGD") {
          EXPECT_TRUE(limit == 200 || optimizer->usage().sub_groups == (limit == 1 ? 4 : 1))
              << what;
        }
        for (int t = 0; t < 10; ++t) {
          draw_gradients(plain);
          if (t % 3 == 1) plain[static_cast<size_t>(t) % 4].second.mutable_grad() = at::Tensor();
          copy_gradients(plain, away);
          inner->step(kLr, 0.25);
          optimizer->step(kLr, 0.25);
        }
        expect_same(plain, away, what);
        EXPECT_EQ(optimizer->steps(), 10);
        EXPECT_EQ(optimizer->table().fingerprint(), ParameterTable(plain).fingerprint());
        Collect expected, found;
        inner->state(expected);
        optimizer->state(found);
        EXPECT_EQ(expected.values, found.values) << what;
        EXPECT_EQ(expected.tensors.size(), found.tensors.size()) << what;
        for (const auto& [key, tensor] : expected.tensors)
          EXPECT_TRUE(found.tensors.count(key) && tensor.equal(found.tensors.at(key)))
              << what << ' ' << key;
        EXPECT_EQ(optimizer->usage().resident_bytes, 0);
        if (HasFailure()) return;
      }
}

TEST(shard_offload_optimizer, what_has_no_state_makes_no_file) {
  PrivateFolder folder;
  auto optimizer = offload_optimizer(
      start(torch::kFloat), [](NamedTensors p) { return make_sgd(std::move(p)); }, small(folder));
  EXPECT_EQ(optimizer->file(), nullptr);
  EXPECT_EQ(optimizer->usage().state_bytes, 0);
  EXPECT_EQ(optimizer->usage().buffer_bytes, 0);
}

const MakeOptimizer kAdamW = [](NamedTensors p) { return make_adamw(std::move(p)); };

NamedTensors layers(int count, int64_t numel) {
  NamedTensors all;
  torch::manual_seed(3);
  for (int i = 0; i < count; ++i)
    all.emplace_back("layer" + std::to_string(i), torch::randn({numel}).requires_grad_());
  return all;
}

TEST(shard_offload_optimizer, construction_holds_one_sub_group_of_state_at_a_time) {
  PrivateFolder folder;
  auto parameters = layers(8, 1 << 14);  // 128 KiB of state each
  LiveBytes live;
  auto optimizer = offload_optimizer(parameters, kAdamW, small(folder, 256 << 10));
  EXPECT_LE(live.peak(), 260 << 10);
  EXPECT_LE(live.now(), 4 << 10);
  const OffloadUsage usage = optimizer->usage();
  EXPECT_EQ(usage.sub_groups, 4);
  EXPECT_EQ(usage.state_bytes, 8 * (128 << 10));
  EXPECT_EQ(usage.buffer_bytes, 3 * (256 << 10));
  EXPECT_EQ(usage.resident_bytes, 0);
  // Nor does a step make any.
  draw_gradients(parameters);
  const int64_t before = live.now();
  live.reset_peak();
  optimizer->step(kLr);
  EXPECT_LE(live.peak() - before, 1 << 10);
}

/// How much state is in memory while a visitor sees it.
struct Watch : StateVisitor {
  using StateVisitor::tensor;
  explicit Watch(const OffloadedOptimizer& o, bool keep = false) : optimizer(o), keep(keep) {}
  void tensor(const Slice& slice, at::Tensor local) override {
    most = std::max(most, optimizer.usage().resident_bytes);
    (void)local.sum().item<double>();
    if (keep) kept.emplace_back(slice.name, local.detach());
  }
  void value(const std::string&, int64_t&) override {}
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}
  const OffloadedOptimizer& optimizer;
  bool keep;
  int64_t most = 0;
  NamedTensors kept;
};

TEST(shard_offload_optimizer, a_walk_brings_in_one_sub_group_after_the_other) {
  PrivateFolder folder;
  auto parameters = layers(8, 1 << 12);
  auto optimizer = offload_optimizer(parameters, kAdamW, small(folder, 64 << 10));
  Watch watch(*optimizer);
  optimizer->state(watch);
  EXPECT_EQ(watch.most, 64 << 10);
  EXPECT_EQ(optimizer->usage().resident_bytes, 0);
  EXPECT_EQ(optimizer->usage().mapped_bytes, 0);
}

TEST(shard_offload_optimizer, tensors_kept_after_a_walk_see_the_file_as_long_as_they_are_kept) {
  PrivateFolder folder;
  auto plain = layers(5, 3000), away = layers(5, 3000);
  auto inner = kAdamW(plain);
  auto optimizer = offload_optimizer(away, kAdamW, small(folder, 50 << 10));
  {
    Watch watch(*optimizer, true);
    optimizer->state(watch);
    EXPECT_EQ(optimizer->usage().mapped_bytes, optimizer->usage().state_bytes);
    for (int t = 0; t < 3; ++t) {
      draw_gradients(plain);
      copy_gradients(plain, away);
      inner->step(kLr);
      optimizer->step(kLr);
      Collect expected;
      inner->state(expected);
      for (const auto& [name, tensor] : watch.kept)
        EXPECT_TRUE(tensor.equal(expected.tensors.at(name))) << name << " after step " << t;
    }
  }
  draw_gradients(away);
  optimizer->step(kLr);
  EXPECT_EQ(optimizer->usage().mapped_bytes, 0);
}

TEST(shard_offload_optimizer, a_restored_state_is_written_back_and_an_unchanged_one_is_not) {
  struct Counters : TraceSink {
    void span(const char*, const char*, int64_t, int64_t) override {}
    void counter(const char* name, double delta) override {
      std::lock_guard lock(mutex);
      sums[name] += delta;
    }
    std::mutex mutex;
    std::map<std::string, double> sums;
  };
  PrivateFolder folder;
  auto one = layers(4, 2000), two = layers(4, 2000);
  auto first = offload_optimizer(one, kAdamW, small(folder, 1));
  auto second = offload_optimizer(two, kAdamW, small(folder, 40 << 10));
  draw_gradients(one);
  first->step(kLr);
  Counters counters;
  set_thread_trace_sink(&counters);
  Collect seen;
  first->state(seen);
  EXPECT_EQ(counters.sums.count("offload.bytes_written"), 0u);
  EXPECT_GE(counters.sums["offload.bytes_read"], 4 * 16000);
  Restore restore(seen);
  second->state(restore);
  EXPECT_GE(counters.sums["offload.bytes_written"], 4 * 16000);
  set_thread_trace_sink(nullptr);
  EXPECT_EQ(second->steps(), 1);
  for (size_t i = 0; i < one.size(); ++i) two[i].second.data().copy_(one[i].second);
  draw_gradients(one);
  copy_gradients(one, two);
  first->step(kLr);
  second->step(kLr);
  expect_same(one, two, "restored");
}

TEST(shard_offload_optimizer, a_visitor_that_throws_leaves_a_state_that_can_be_restored) {
  PrivateFolder folder;
  auto one = layers(4, 100), two = layers(4, 100);
  auto first = offload_optimizer(one, kAdamW, small(folder, 1));
  auto second = offload_optimizer(two, kAdamW, small(folder, 1));
  draw_gradients(one);
  copy_gradients(one, two);
  first->step(kLr);
  Collect seen;
  first->state(seen);
  Collect holes = seen;
  holes.tensors.erase("optim.exp_avg.layer2");
  Restore broken(holes);
  EXPECT_THROW(second->state(broken), std::out_of_range);
  Restore whole(seen);
  second->state(whole);
  Collect again;
  second->state(again);
  EXPECT_EQ(again.values, seen.values);
  for (const auto& [name, tensor] : seen.tensors)
    EXPECT_TRUE(tensor.equal(again.tensors.at(name))) << name;
}

TEST(shard_offload_optimizer, a_refused_gradient_changes_nothing) {
  PrivateFolder folder;
  auto plain = layers(4, 100), away = layers(4, 100);
  auto optimizer = offload_optimizer(away, kAdamW, small(folder, 1));
  draw_gradients(away);
  const at::Tensor fine = away[3].second.grad();
  away[3].second.mutable_grad() = fine.to_sparse();
  const std::string o = outcome_of([&] { optimizer->step(kLr); });
  EXPECT_TRUE(has(o, "UsageError: ") && has(o, "'layer3' is sparse")) << o;
  expect_same(plain, away, "refused");
  EXPECT_EQ(optimizer->steps(), 0);
  away[3].second.mutable_grad() = fine;
  copy_gradients(away, plain);
  kAdamW(plain)->step(kLr);
  optimizer->step(kLr);
  expect_same(plain, away, "then taken");
}

TEST(shard_offload_optimizer, zero_grad_fills_or_drops_gradients) {
  PrivateFolder folder;
  auto parameters = layers(2, 100);
  auto optimizer = offload_optimizer(parameters, kAdamW, small(folder));
  draw_gradients(parameters);
  const at::Tensor g = parameters[1].second.grad();
  optimizer->zero_grad();
  EXPECT_TRUE(g.eq(0).all().item<bool>());
  optimizer->zero_grad(true);
  EXPECT_FALSE(parameters[1].second.grad().defined());
}

TEST(shard_offload_optimizer, a_flipped_bit_stops_the_step_naming_parameters_file_and_bytes) {
  PrivateFolder folder;
  auto parameters = layers(6, 2000);
  auto optimizer = offload_optimizer(parameters, kAdamW, small(folder, 32 << 10));
  draw_gradients(parameters);
  optimizer->step(kLr);
  ASSERT_EQ(optimizer->usage().sub_groups, 3);
  flip_byte(folder.path(), 33000);  // of the second of them
  const std::string o = outcome_of([&] { optimizer->step(kLr); });
  EXPECT_TRUE(has(o,
                  "Corrupt: reading the optimizer state of the parameters 'layer2' to 'layer3' "
                  "failed halfway: make a new optimizer and load a checkpoint. ") &&
              has(o, "the offload file in " + folder.path() + ": bytes 32768 to 36864 "))
      << o;
  const std::string later = outcome_of([&] { optimizer->step(kLr); });
  EXPECT_TRUE(has(later, "UsageError: offload: the state is lost: reading ")) << later;
}

TEST(shard_offload_optimizer, a_full_disk_is_a_ResourceError_of_the_step_that_met_it) {
  PrivateFolder folder;
  for (const char* failpoint : {"offload.write@2=error(28)", "offload.read@2=error(5)"}) {
    auto parameters = layers(6, 2000);
    auto optimizer = offload_optimizer(parameters, kAdamW, small(folder, 1));
    draw_gradients(parameters);
    set_failpoints(failpoint);
    const std::string o = outcome_of([&] { optimizer->step(kLr); });
    set_failpoints("");
    EXPECT_TRUE(has(o, "ResourceError: ") &&
                has(o, " the optimizer state of the parameters 'layer"))
        << o;
  }
}

TEST(shard_offload_optimizer, options_and_optimizers_that_do_not_fit_are_refused_by_name) {
  PrivateFolder folder;
  auto refused = [](const std::function<void()>& call, const std::string& part) {
    const std::string o = outcome_of(call);
    EXPECT_TRUE(has(o, "UsageError: ") && has(o, part)) << o;
  };
  const auto p = layers(2, 10);
  OffloadOptions options = small(folder);
  options.buffer_count = 0;
  refused([&] { offload_optimizer(p, kAdamW, options); }, "buffer_count is 0");
  refused([&] { offload_optimizer(p, kAdamW, small(folder, 0)); }, "sub_group_bytes is 0");
  refused([&] { offload_optimizer({}, kAdamW, small(folder)); }, "no parameters");
  refused([&] { offload_optimizer(p, {}, small(folder)); }, "no way to make");
  refused(
      [&] {
        offload_optimizer(
            p, [](NamedTensors) { return nullptr; }, small(folder));
      },
      "no optimizer was made");
  const NamedTensors one_name = {p[0], {p[0].first, p[1].second}};
  refused([&] { offload_optimizer(one_name, kAdamW, small(folder)); }, "layer0");
}

// ---- the disk works while the processor does

/// What began and ended when; and how much has been read and written so far.
struct Timeline : TraceSink {
  struct Entry {
    std::string category, name;
    int64_t begin, end;
  };
  void span(const char* category, const char* name, int64_t begin, int64_t end) override {
    std::lock_guard lock(mutex);
    entries.push_back({category, name, begin, end});
    changed.notify_all();
  }
  void counter(const char*, double) override {}
  int64_t count(const std::string& name) {  // under the mutex
    return std::count_if(entries.begin(), entries.end(),
                         [&](const Entry& e) { return e.category == "offload" && e.name == name; });
  }
  bool wait_for(int64_t reads, int64_t writes) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20),
                            [&] { return count("read") >= reads && count("write") >= writes; });
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Entry> entries;
};

/// Does not end its step before its neighbours' state has been read and written.
class Patient final : public Optimizer {
 public:
  Patient(NamedTensors p, std::unique_ptr<Optimizer> inner, std::function<void()> before)
      : Optimizer(std::move(p), {}), inner_(std::move(inner)), before_(std::move(before)) {}
  void step(double lr, double grad_scale) override {
    before_();
    inner_->step(lr, grad_scale);
    steps_ = inner_->steps();
  }
  void state(StateVisitor& visitor) override { inner_->state(visitor); }

 private:
  std::unique_ptr<Optimizer> inner_;
  std::function<void()> before_;
};

TEST(shard_offload_optimizer, the_neighbours_are_read_and_written_while_a_sub_group_steps) {
  PrivateFolder folder;
  constexpr int kLayers = 6;
  for (auto engine : {OffloadEngine::automatic, OffloadEngine::threads})
    for (bool pipelined : {true, false}) {
      auto parameters = layers(kLayers, 1 << 16);
      Timeline timeline;
      int turn = 0;
      const MakeOptimizer make = [&](NamedTensors p) {
        auto inner = make_adamw(p);
        return std::make_unique<Patient>(std::move(p), std::move(inner), [&] {
          // Sub-group `turn` steps. Its successor is read and its predecessor written meanwhile.
          if (pipelined) {
            const bool done = timeline.wait_for(std::min(turn + 2, kLayers), turn);
            check<Error>(done, "nothing moved while sub-group {} stepped", turn);
          } else {
            std::lock_guard lock(timeline.mutex);
            check<Error>(timeline.count("read") == turn + 1 && timeline.count("write") == turn,
                         "moved early");
          }
          ++turn;
        });
      };
      OffloadOptions options = small(folder, 1);
      options.file.engine = engine;
      options.pipeline_read = options.pipeline_write = pipelined;
      auto optimizer = offload_optimizer(parameters, make, options);
      ASSERT_EQ(optimizer->usage().sub_groups, kLayers);
      draw_gradients(parameters);
      set_thread_trace_sink(&timeline);
      const std::string o = outcome_of([&] { optimizer->step(kLr); });
      set_thread_trace_sink(nullptr);
      EXPECT_EQ(o, "");
      int overlapping = 0;
      for (const auto& step : timeline.entries)
        for (const auto& io : timeline.entries)
          overlapping += step.name == "sub-group" && (io.name == "read" || io.name == "write") &&
                         io.begin < step.end && step.begin < io.end;
      // A read or write of 512 KiB lasts longer than it takes to begin the step beside it.
      EXPECT_EQ(overlapping > 0, pipelined);
      EXPECT_EQ(turn, kLayers);
    }
}

}  // namespace
}  // namespace trireme::testing::offload_optimizer_test
