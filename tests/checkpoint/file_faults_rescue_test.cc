// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tests/checkpoint/file_faults.h"
#include "tests/checkpoint/steps/pretend_worker.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/newest_good.h"
#include "trireme/checkpoint/steps/snapshot/rescue.h"
#include "trireme/checkpoint/steps/step_reader.h"
#include "trireme/checkpoint/steps/verify_step.h"

// A launcher that writes what dead workers left in memory, where it ends itself, or the disk fails,
// at each of its file calls. A sample of the calls; all of them with TRIREME_SOAK=1 (scripts/soak
// --files).
namespace file_faults_rescue_test {

using namespace trireme;
using namespace trireme::test;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

using checkpoint_file_faults_rescue = OnMemoryDisk;
using Steps = std::vector<int64_t>;

/// What two workers had copied of a step; its weights are of its number.
std::vector<HandedSnapshot> handed(const std::string& run, int64_t step) {
  std::vector<HandedSnapshot> snapshots;
  for (int rank : {0, 1}) {
    PretendWorker w;
    w.rank = rank, w.run_dir = run, w.step = step, w.value = static_cast<float>(step);
    w.save = fmt::format(".tmp-{}-new-1-0badcafe", step_folder_name(step));
    snapshots.push_back({memory_of(w.bytes()), rank});
  }
  return snapshots;
}

/// ResourceError with what the launcher says, where nothing was saved.
void rescue(const std::vector<HandedSnapshot>& snapshots) {
  const auto reports = rescue_snapshots(snapshots);
  check<Error>(reports.size() == 1, "{} reports", reports.size());
  check<ResourceError>(reports[0].saved, "{}", reports[0].text);
}

struct Scene {
  const char* name;
  Steps before;
  int64_t rescued;
  bool was_begun;  // their saver had made a part of it on disk
  int64_t old_step() const { return before.empty() ? -1 : before.back(); }
};
const Scene kScenes[] = {{"the first step of a run", {}, 7, true},
                         {"a step, and an older one is deleted", {3, 5}, 7, true},
                         {"a step of which nothing was begun", {3, 5}, 7, false},
                         {"a step that takes the place of another branch's", {3, 7}, 7, true}};

/// A run folder in the state before.
class Stage {
 public:
  explicit Stage(const Scene& scene) : scene_(scene) {
    fs::create_directories(run());
    for (int64_t step : scene.before) rescue(handed(run(), step));
    snapshots_ = handed(run(), scene.rescued);
    if (!scene.was_begun) return;
    const std::string begun =
        run() + "/.tmp-" + step_folder_name(scene.rescued) + "-new-1-0badcafe";
    fs::create_directory(begun);
    spill(begun + "/model-rank00000.safetensors", "half of a");
  }
  std::string root() const { return disk_.path(); }
  std::string run() const { return disk_.path() + "/run"; }
  void act() const { rescue(snapshots_); }
  std::string plan(const std::string& faults) const { return "only=" + root() + "," + faults; }

 private:
  const Scene& scene_;
  PrivateFolder disk_{"trireme-disk"};
  std::vector<HandedSnapshot> snapshots_;
};

std::vector<LoggedCall> counted(const Scene& scene) {
  const Stage stage(scene);
  return calls_of(stage.root(), [&] { stage.act(); });
}

/// Whatever shows as a step is whole and has its own weights; what resumes is the old step or the
/// rescued one (-1: nothing, if that is the old); the next rescue succeeds, keeps what it must and
/// leaves no temporaries. The step that resumes; an Error where it is not so.
int64_t sound_step(const std::string& run, const Scene& scene) {
  int64_t resumed = -1;
  for (int64_t step : list_steps(run)) {
    const std::string folder = run + "/" + step_folder_name(step);
    check<Error>(verify_step(folder).good(), "step {} is damaged", step);
    StepReader reader(folder);
    const auto bytes = reader.read("model.w", 0, 8);
    for (size_t i = 0; i < 8; ++i) {
      float weight = 0;
      std::memcpy(&weight, bytes.data() + 4 * i, 4);
      check<Error>(weight == static_cast<float>(step + (i < 4 ? 0 : 1)), "step {} has {}", step,
                   weight);
    }
  }
  if (!list_steps(run).empty() || scene.old_step() >= 0)
    resumed = step_of_folder(newest_good_step(run));
  check<Error>(resumed == scene.old_step() || resumed == scene.rescued, "{} is resumed", resumed);
  rescue(handed(run, 9));
  check<Error>(find_checkpoint(run) == run + "/" + step_folder_name(9), "`latest` is another");
  check<Error>(scene.old_step() < 0 || list_steps(run).size() == 2, "the older one is gone");
  for (const auto& item : fs::directory_iterator(run)) {
    const std::string name = item.path().filename().string();
    check<Error>(name == "latest" || step_of_folder(name) >= 0, "{} is left", name);
  }
  return resumed;
}

int64_t expect_sound(const std::string& run, const Scene& scene, const std::string& where) {
  try {
    return sound_step(run, scene);
  } catch (const std::exception& e) {
    ADD_FAILURE() << where << ": " << e.what();
    return -1;
  }
}

std::string label(const Scene& scene, const LoggedCall& call, const std::string& what) {
  return fmt::format("{}: {} at call {}, {} {} {}", scene.name, what, call.number, call.kind,
                     call.path, call.to);
}

}  // namespace

TEST_F(checkpoint_file_faults_rescue,
       a_launcher_killed_before_or_after_any_call_leaves_the_old_step_or_the_new_whole) {
  for (const Scene& scene : kScenes) {
    const auto calls = counted(scene);
    ASSERT_GT(calls.size(), 20u);
    size_t salt = 0;
    for (const char* fault : {"kill-before", "kill-after"})
      for (size_t n : sample(calls.size(), 12, salt++)) {
        const Stage stage(scene);
        const std::string where = label(scene, calls[n - 1], fault);
        EXPECT_EQ(end_of_child(stage.plan(fmt::format("{}:{}", n, fault)), [&] { stage.act(); }),
                  "killed")
            << where;
        expect_sound(stage.run(), scene, where);
      }
  }
}

TEST_F(checkpoint_file_faults_rescue, any_call_that_fails_is_told_or_does_no_harm) {
  for (const Scene& scene : kScenes) {
    const auto calls = counted(scene);
    size_t salt = 0;
    for (const auto& [fault, reason] : {std::pair{"ENOSPC", "No space left on device"},
                                        {"EIO", "Input/output error"},
                                        {"EROFS", "Read-only file system"},
                                        {"fsync-fails", "Input/output error"},
                                        {"short", ""}})
      for (size_t n : sample(calls.size(), 8, salt++)) {
        const Stage stage(scene);
        const std::string where = label(scene, calls[n - 1], fault);
        const std::string text =
            end_of_child(stage.plan(fmt::format("{}:{}", n, fault)), [&] { stage.act(); });
        EXPECT_TRUE(text.empty() ||
                    (*reason != '\0' && names_a_path_and(text, stage.root(), reason)))
            << where << ": " << text;
        if (!text.empty() && scene.old_step() != scene.rescued) {
          const Steps shown = list_steps(stage.run());
          EXPECT_EQ(contains(text, "it is in "), shown != scene.before) << where << ": " << text;
        }
        const int64_t resumed = expect_sound(stage.run(), scene, where);
        if (text.empty()) {
          EXPECT_EQ(resumed, scene.rescued) << where;
        }
      }
  }
}

TEST_F(checkpoint_file_faults_rescue, after_a_power_cut_the_old_step_or_the_new_is_whole) {
  for (const Scene& scene : kScenes) {
    const Stage stage(scene);
    PrivateFolder logs;
    RecordedDisk disk(stage.root(), logs / "record");
    {
      const FileFaults faults(stage.plan("record=" + (logs / "record")));
      stage.act();
    }
    disk.read();
    std::vector<size_t> counts = sample(disk.calls.size(), 10, 0);
    counts.push_back(disk.calls.size());
    for (size_t n : counts)
      for (unsigned variant = 0; variant < (every_call() ? 22 : 4); ++variant) {
        const PrivateFolder cut;
        rebuild(disk.after(n), cut / "disk", variant);
        const std::string where =
            label(scene, disk.calls[n - 1], fmt::format("a cut of kind {}", variant));
        const int64_t resumed = expect_sound(cut / "disk/run", scene, where);
        if (n == disk.calls.size()) {
          EXPECT_EQ(resumed, scene.rescued) << where << ": what was saved is lost";
        }
      }
  }
}

}  // namespace file_faults_rescue_test
