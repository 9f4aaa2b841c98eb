// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "tests/checkpoint/file_faults.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/comm/start/run.h"
#include "trireme/optim/master_weights.h"
#include "trireme/optim/optimizer.h"
#include "trireme/shard/offload/offload_optimizer.h"

// A run whose optimizer has its state in a file, which resumes, trains and saves, where it ends, or
// a disk fails, at each of its file calls: those of its checkpoints and those that move its state,
// by io_uring or threads. A sample of the calls; all of them with TRIREME_SOAK=1 (scripts/soak
// --files).
namespace file_faults_offload_test {

using namespace trireme;
using namespace trireme::test;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// bfloat16 weights under float32 masters, whose moments and masters are in a file of `folder`, or
/// ("") in memory.
struct Model {
  explicit Model(const std::string& folder, OffloadEngine engine = OffloadEngine::automatic) {
    torch::manual_seed(1);
    for (int i = 0; i < 3; ++i)
      weights.emplace_back("layer" + std::to_string(i),
                           torch::randn({30 + i, 70}).to(torch::kBFloat16).requires_grad_());
    const MakeOptimizer make = [](NamedTensors p) {
      return with_master_weights(std::move(p),
                                 [](NamedTensors q) { return make_adamw(std::move(q)); });
    };
    if (folder.empty())
      optimizer = make(weights);
    else
      optimizer = offload_optimizer(weights, make,
                                    {.file = {.folder = folder, .engine = engine, .direct = false},
                                     .sub_group_bytes = 30000});
  }
  /// The step after this many: the same bits, wherever its state is.
  void train(int64_t step) {
    torch::manual_seed(static_cast<uint64_t>(step));
    for (auto& [name, p] : weights) p.mutable_grad() = torch::randn(p.sizes()).to(p.dtype());
    optimizer->step(0.01);
  }
  StateWalk walk() {
    return [this](StateVisitor& v) {
      for (auto& [name, p] : weights) v.tensor("model." + name, p.detach());
      optimizer->state(v);
    };
  }
  bool same_as(const Model& other) const {
    for (size_t i = 0; i < weights.size(); ++i)
      if (!weights[i].second.equal(other.weights[i].second)) return false;
    return true;
  }
  NamedTensors weights;
  std::unique_ptr<Optimizer> optimizer;
};

enum class Way { waits, async };
struct Run {
  const char* name;
  Way way;
  OffloadEngine engine;
};
const Run kRuns[] = {{"io_uring_and_saves_that_wait", Way::waits, OffloadEngine::automatic},
                     {"io_uring_and_asynchronous_saves", Way::async, OffloadEngine::automatic},
                     {"threads_and_asynchronous_saves", Way::async, OffloadEngine::threads}};

/// A disk with step 100 of a run, and a folder for its state.
class Disk {
 public:
  Disk() {
    fs::create_directory(state());
    Model model("");
    model.train(99);
    save_step(run(), 100, model.walk());
  }
  std::string root() const { return disk_.path(); }
  std::string run() const { return disk_.path() + "/run"; }
  std::string state() const { return disk_.path() + "/state"; }
  /// Goes on from step 100, and saves step 200.
  void act(const Run& kind) const {
    Model model(state(), kind.engine);
    load_step(run(), model.walk());
    model.train(100);
    if (kind.way == Way::waits) {
      save_step(run(), 200, model.walk(), {.keep = 1});
      return;
    }
    run_threads(1, [&](Group group) {
      AsyncSaver saver(run(), group);
      saver.save(200, model.walk(), {.keep = 1});
      model.train(200);  // while it is written
      saver.wait();
    });
  }
  std::string plan(const std::string& faults) const { return "only=" + root() + "," + faults; }

 private:
  PrivateFolder disk_{"trireme-disk"};
};

/// The run goes on from step 100 or from step 200 with the bits of one that was never disturbed,
/// whether its state is in a file or not; nothing is left of the state; the next save succeeds and
/// leaves no temporaries. The step that resumes; an Error where it is not so.
int64_t sound_step(const Disk& disk) {
  check<Error>(fs::is_empty(disk.state()), "a file of states is left");
  const int64_t resumed = step_of_folder(find_checkpoint(disk.run()));
  check<Error>(resumed == 100 || resumed == 200, "{} is resumed", resumed);
  Model calm("");
  for (int64_t done = 99; done <= resumed; done += done == 99 ? 1 : 100) calm.train(done);
  for (const std::string& folder : {std::string(), disk.state()}) {
    Model model(folder);
    load_step(disk.run(), model.walk());
    model.train(resumed);
    check<Error>(model.same_as(calm), "other weights go on from step {}", resumed);
    if (!folder.empty()) save_step(disk.run(), 300, model.walk(), {.keep = 1});
  }
  for (const auto& item : fs::directory_iterator(disk.run())) {
    const std::string name = item.path().filename().string();
    check<Error>(name == "latest" || name == step_folder_name(300), "{} is left", name);
  }
  return resumed;
}

int64_t expect_sound(const Disk& disk, const std::string& where) {
  try {
    return sound_step(disk);
  } catch (const std::exception& e) {
    ADD_FAILURE() << where << ": " << e.what();
    return -1;
  }
}

std::string label(const LoggedCall& call, const std::string& what) {
  return fmt::format("{} at call {}, {} {} {}", what, call.number, call.kind, call.path, call.to);
}

class checkpoint_file_faults_offload : public OnMemoryDisk,
                                       public ::testing::WithParamInterface<Run> {
 protected:
  /// Those of the state among them.
  std::vector<LoggedCall> counted() const {
    const Disk disk;
    PrivateFolder logs;
    EXPECT_EQ(end_of_child(disk.plan("count=" + (logs / "log")), [&] { disk.act(GetParam()); }),
              "");
    std::vector<LoggedCall> calls = read_file_log(logs / "log");
    size_t moved = 0;
    for (const LoggedCall& call : calls)
      moved += call.moves_bytes() && contains(call.path, disk.state());
    EXPECT_GT(moved, 10u);
    return calls;
  }
};

INSTANTIATE_TEST_SUITE_P(by, checkpoint_file_faults_offload, ::testing::ValuesIn(kRuns),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace

TEST_P(checkpoint_file_faults_offload, killed_before_or_after_any_call_it_goes_on_as_before) {
  const auto calls = counted();
  size_t salt = 0;
  for (const char* fault : {"kill-before", "kill-after"})
    for (size_t n : sample(calls.size(), 16, salt++)) {
      const Disk disk;
      const std::string where = label(calls[n - 1], fault),
                        end = end_of_child(disk.plan(fmt::format("{}:{}", n, fault)),
                                           [&] { disk.act(GetParam()); });
      // How often rank 0's thread looks for files is a matter of time.
      EXPECT_TRUE(end == "killed" || (GetParam().way == Way::async && end.empty()))
          << where << ": " << end;
      expect_sound(disk, where);
    }
}

TEST_P(checkpoint_file_faults_offload, any_call_that_fails_is_told_or_does_no_harm) {
  const auto calls = counted();
  size_t salt = 0;
  for (const auto& [fault, reason] : {std::pair{"EIO", "Input/output error"},
                                      {"ENOSPC", "No space left on device"},
                                      {"EROFS", "Read-only file system"},
                                      {"fsync-fails", "Input/output error"},
                                      {"short", ""}})
    for (size_t n : sample(calls.size(), 8, salt++)) {
      const Disk disk;
      const std::string where = label(calls[n - 1], fault),
                        text = end_of_child(disk.plan(fmt::format("{}:{}", n, fault)),
                                            [&] { disk.act(GetParam()); });
      EXPECT_TRUE(text.empty() || (*reason != '\0' && names_a_path_and(text, disk.root(), reason)))
          << where << ": " << text;
      const int64_t resumed = expect_sound(disk, where);
      if (text.empty()) {
        EXPECT_EQ(resumed, 200) << where;
      }
    }
}

}  // namespace file_faults_offload_test
