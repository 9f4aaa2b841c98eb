// SPDX-License-Identifier: Apache-2.0
// The table of layouts: what the ranks of each have saved, those of every other load, and save
// again, bit for bit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "tests/checkpoint/file_faults.h"
#include "tests/train/programs.h"
#include "tests/train/run_folders.h"
#include "tests/train/same_steps.h"
#include "trireme/train/data_place.h"
#include "trireme/train/engine.h"
#include "trireme/train/program/make_trainer.h"

namespace resume_layouts_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

struct Layout {
  std::string name;
  int ranks;
  Sets sets;
};

std::vector<Layout> layouts(const std::string& disk) {
  const Sets states_on_disk{"zero_optimization.offload_optimizer.device=nvme",
                            "zero_optimization.offload_optimizer.nvme_path=" + disk,
                            "zero_optimization.sub_group_size=512"};
  const Sets parameters_on_disk{"zero_optimization.offload_param.device=nvme",
                                "zero_optimization.offload_param.nvme_path=" + disk};
  const Sets whole_biases{"zero_optimization.stage3_param_persistence_threshold=20"};
  std::vector<Layout> all;
  const auto add = [&](int ranks, int stage, const std::string& how = "", const Sets& more = {}) {
    Layout layout{fmt::format("{}_ranks_stage_{}{}", ranks, stage, how),
                  ranks,
                  {fmt::format("zero_optimization.stage={}", stage)}};
    if (stage == 3 && more != whole_biases)
      layout.sets.push_back("zero_optimization.stage3_param_persistence_threshold=0");
    layout.sets.insert(layout.sets.end(), more.begin(), more.end());
    all.push_back(std::move(layout));
  };
  for (int ranks : {1, 2, 4})
    for (int stage : {0, 1, 2, 3}) add(ranks, stage);
  for (int stage : {1, 2, 3}) {
    add(4, stage, "_in_2_replicas", {"parallelism.dp_shard=2", "parallelism.dp_replicate=2"});
    for (int ranks : {1, 2}) add(ranks, stage, "_states_on_disk", states_on_disk);
  }
  Sets both = states_on_disk;
  both.insert(both.end(), parameters_on_disk.begin(), parameters_on_disk.end());
  add(2, 3, "_all_on_disk", both);
  add(2, 2, "_states_in_host_memory", {"zero_optimization.offload_optimizer.device=cpu"});
  add(4, 3, "_with_whole_biases", whole_biases);
  add(2, 1, "_one_copy_of_the_weights", {"zero_optimization.share_weights=true"});
  return all;
}

// 8 samples a step. With AdamW each weight has two moments and a number of steps.
const Sets kStep{"train_batch_size=8", "optimizer.type=AdamW",
                 R"(optimizer.params={"lr": 0.01, "weight_decay": 0.1})"};

/// What ranks hold: those that hold the same part of a tensor must hold the same bytes.
class Held {
 public:
  void add(const Slice& slice, const at::Tensor& local) {
    std::string part = slice.name;
    for (const auto* numbers : {&slice.offsets, &slice.lengths})
      for (int64_t n : *numbers) part += fmt::format(" {}", n);
    if (slice.flat) part += fmt::format(" from {}: {}", slice.flat->begin, slice.flat->count);
    const at::Tensor bytes = local.contiguous();
    std::string text(static_cast<const char*>(bytes.data_ptr()), bytes.nbytes());
    std::lock_guard lock(mutex_);
    const auto [at, first] = parts_.emplace(part, text);
    if (!first && at->second != text) differing_.insert(part);
  }
  std::set<std::string> differing() const { return differing_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> parts_;
  std::set<std::string> differing_;
};

struct HeldVisitor final : StateVisitor {
  explicit HeldVisitor(Held& h) : held(h) {}
  using StateVisitor::tensor;
  void tensor(const Slice& slice, at::Tensor local) override { held.add(slice, local); }
  void value(const std::string&, int64_t&) override {}
  void value(const std::string&, double&) override {}
  void value(const std::string&, std::string&) override {}
  Held& held;
};

/// One rank's run: a new one, or one that goes on from a step.
class Started {
 public:
  virtual ~Started() = default;
  virtual void step() = 0;
  virtual std::string save(const std::string& folder) = 0;
  /// Shows what this rank holds, if that can be seen.
  virtual void state(StateVisitor&) {}
};
/// `from`: "" or a step.
using Start =
    std::function<std::unique_ptr<Started>(const Layout&, const Group&, const std::string& from)>;

/// As train() makes it.
class InTrainer final : public Started {
 public:
  InTrainer(const Config& config, const Group& group, const std::string& from) {
    std::optional<DataPlace> place;
    if (!from.empty()) place = data_place_of(from, group);
    trainer_ = std::make_unique<Trainer>(make_built_in_trainer(
        program_, config, group, {!place, place ? place->origin : std::nullopt}));
    if (place) impl().load(from, nullptr);
    start_data(impl().first(), config);
  }
  void step() override { impl().take_step({}); }
  std::string save(const std::string& folder) override { return impl().save(folder, std::nullopt); }
  void state(StateVisitor& visitor) override { impl().state(visitor); }

 private:
  struct Nothing final : Program {
    Pieces make(const Config&) override { return {}; }
    LossTerms loss(Network&, const MicroBatch&) override { return {}; }
  } program_;
  Trainer::Impl& impl() { return trainer_->impl(); }
  std::unique_ptr<Trainer> trainer_;
};

// Layers of 1570, 9 and 40 elements, 1619 together: however ZeRO deals them to 2 or 4 ranks, the
// last one's part is padded. An epoch has 5 steps.
Start trained(const Sets& more) {
  return [=](const Layout& layout, const Group& group, const std::string& from) {
    Sets sets{"model.hidden=[2,3]", "data.train_samples=40", "data.workers=0",
              "training.steps=100"};
    sets.insert(sets.end(), kStep.begin(), kStep.end());
    sets.insert(sets.end(), layout.sets.begin(), layout.sets.end());
    sets.insert(sets.end(), more.begin(), more.end());
    return std::make_unique<InTrainer>(digits("mlp", sets), group, from);
  };
}

/// An engine around a module of 53 elements.
class InEngine final : public Started {
 public:
  InEngine(const Config& config, const Group& group, const std::string& from)
      : engine_(initialize(SmallNet(6, 3, 5), config, group)) {
    if (!from.empty()) engine_.load_checkpoint(from);
  }
  void step() override {
    const int64_t rows = engine_.train_micro_batch_size_per_gpu();
    const at::Tensor x = (torch::arange(rows * 6, at::kFloat) * 0.3 + engine_.group().rank()).sin();
    engine_.backward(engine_.forward(x.view({rows, 6})).pow(2).mean());
    engine_.step();
  }
  std::string save(const std::string& folder) override {
    return engine_.save_checkpoint(folder, 1000);
  }

 private:
  Engine engine_;
};

std::unique_ptr<Started> in_engine(const Layout& layout, const Group& group,
                                   const std::string& from) {
  Sets sets = kStep;
  sets.insert(sets.end(), layout.sets.begin(), layout.sets.end());
  return std::make_unique<InEngine>(Config::from_text("ds_config.json", "{}", sets), group, from);
}

class train_resume_layouts : public test::OnMemoryDisk {
 protected:
  /// Each layout loads what every `stride`-th has saved, so that each layout's is loaded by some.
  void expect_the_same_bits(const Start& start, size_t stride) const {
    const Folders folders;
    const std::vector<Layout> all = layouts(disk_.path());
    // Each after another number of steps, so that nothing of one is like that of another.
    std::vector<StepReader> saved;
    for (size_t i = 0; i < all.size(); ++i) {
      std::string step;
      run_threads(all[i].ranks, [&](const Group& g) {
        const auto run = start(all[i], g, "");
        for (size_t n = 0; n < 3 + i; ++n) run->step();
        const std::string folder = run->save(folders.run(all[i].name));
        if (g.rank() == 0) step = folder;
      });
      saved.emplace_back(step);
    }
    for (const auto& [name, tensor] : saved[0].index().tensors)
      EXPECT_GT(compare_tensors(saved[0], saved[1], name, 0).differing, 0) << name;

    for (size_t to = 0; to < all.size(); ++to) {
      const std::string again = folders.run("again");
      std::vector<Held> held(all.size());
      run_threads(all[to].ranks, [&](const Group& g) {
        for (size_t from = (to + 1) % stride; from < all.size(); from += stride) {
          const auto run = start(all[to], g, saved[from].folder());
          HeldVisitor visitor(held[from]);
          run->state(visitor);
          run->save(again);
        }
      });
      for (size_t from = (to + 1) % stride; from < all.size(); from += stride) {
        const std::string pair = all[from].name + " -> " + all[to].name;
        StepReader step(again + "/" + step_folder_name(saved[from].index().step));
        EXPECT_EQ(differences(saved[from], step), "") << pair;
        EXPECT_EQ(held[from].differing(), std::set<std::string>()) << pair;
      }
      std::filesystem::remove_all(again);
    }
  }

 private:
  PrivateFolder disk_;  // a real one: made before SetUp()
};

size_t all_or_every(size_t stride) { return std::getenv("TRIREME_SOAK") ? 1 : stride; }

}  // namespace

TEST_F(train_resume_layouts, each_loads_what_each_has_saved_and_saves_the_same_bits) {
  expect_the_same_bits(trained({}), 1);
}

// A sample of the pairs; all of them with TRIREME_SOAK=1.
TEST_F(train_resume_layouts, masters_come_over_with_the_same_bits_too) {
  expect_the_same_bits(trained({"bf16.enabled=true"}), all_or_every(6));
}

// The same sample.
TEST_F(train_resume_layouts, engines_load_what_engines_have_saved_and_save_the_same_bits) {
  expect_the_same_bits(in_engine, all_or_every(6));
}

}  // namespace resume_layouts_test
