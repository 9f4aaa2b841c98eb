// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/file_faults.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "trireme/checkpoint/steps/index.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/newest_good.h"
#include "trireme/checkpoint/steps/run_folder/prune.h"

// Saving, pruning and resuming where the job ends, or the disk fails, at each of their file calls.
// A sample of the calls; all of them with TRIREME_SOAK=1 (scripts/soak --files).
namespace file_faults_test {

using namespace trireme;
using namespace trireme::test;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

using checkpoint_file_faults = OnMemoryDisk;

/// What is done to a run folder, and what stands there before.
struct Scene {
  const char* name;
  std::vector<int64_t> before;
  int64_t saves;  // the newest of `before`: older ones are pruned, and nothing is saved
  int keep;
  const char* disk = "";  // what it cannot do
  std::string folder = "/run";

  bool prunes() const { return !before.empty() && before.size() > 1 && saves == before.back(); }

  int64_t old_step() const { return before.empty() ? -1 : before.back(); }
};

const Scene kScenes[] = {
    {"the first step of a new folder", {}, 100, 2, "", "/a/b/run"},
    {"a step, and an older one is deleted", {100, 200}, 300, 2},
    {"a step that is there already", {100}, 100, 1},
    {"a step that is there already, where names cannot be exchanged",
     {100},
     100,
     1,
     ",exchange:EINVAL"},
    {"a step, and an older one is deleted, without locks", {100, 200}, 300, 2, ",lock:ENOLCK"},
    {"no step, and older ones are pruned", {100, 200, 300}, 300, 1},
};

/// A run folder in the state before.
class Stage {
 public:
  explicit Stage(const Scene& scene) : scene_(scene) {
    if (scene.before.empty()) return;
    fs::create_directories(run());
    for (int64_t step : scene.before) save(run(), step, {.keep = 5});
  }
  std::string root() const { return disk_.path(); }
  std::string run() const { return disk_.path() + scene_.folder; }
  void act() const {
    if (scene_.prunes())
      prune_run(run(), {.keep = scene_.keep}, /*rehearsal=*/false);
    else
      save(run(), scene_.saves, {.keep = scene_.keep});
  }
  std::string plan(const std::string& faults) const {
    return "only=" + root() + "," + faults + scene_.disk;
  }

 private:
  const Scene& scene_;
  PrivateFolder disk_{"trireme-disk"};
};

std::vector<LoggedCall> counted(const Scene& scene) {
  const Stage stage(scene);
  PrivateFolder logs;
  {
    const FileFaults faults(stage.plan("count=" + (logs / "log")));
    stage.act();
  }
  return read_file_log(logs / "log");
}

/// Whatever shows as a step is whole; what resumes is the old step or the new one (-1: nothing, if
/// that is the old); the next save succeeds, keeps what it must and leaves no temporaries. The step
/// that resumes; an Error where it is not so.
int64_t sound_step(const std::string& run, const Scene& scene) {
  int64_t resumed = -1;
  for (int64_t step : list_steps(run)) verify_checkpoint(run + "/" + step_folder_name(step));
  if (!list_steps(run).empty() || scene.old_step() >= 0) resumed = load_mark(run);
  check<Error>(resumed == scene.old_step() || resumed == scene.saves, "{} is resumed", resumed);
  save(run, 400, {.keep = 2});
  const int64_t next = load_mark(run);
  check<Error>(next == 400, "{} is resumed after the next save", next);
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

constexpr std::pair<const char*, const char*> kErrors[] = {{"ENOSPC", "No space left on device"},
                                                           {"EIO", "Input/output error"},
                                                           {"EROFS", "Read-only file system"},
                                                           {"EDQUOT", "Disk quota exceeded"}};

std::string label(const Scene& scene, const LoggedCall& call, const std::string& what) {
  return fmt::format("{}: {} at call {}, {} {} {}", scene.name, what, call.number, call.kind,
                     call.path, call.to);
}

}  // namespace

TEST_F(checkpoint_file_faults,
       killed_before_or_after_any_call_of_a_save_the_old_step_or_the_new_is_whole) {
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

namespace {

/// A save whose call fails as the plan says: told with a path and the reason, or without harm.
void expect_told(const Scene& scene, const LoggedCall& call, const std::string& fault,
                 const std::string& reason) {
  const Stage stage(scene);
  const std::string where = label(scene, call, fault);
  const std::string text = end_of_child(stage.plan(fault), [&] { stage.act(); });
  EXPECT_TRUE(text.empty() || names_a_path_and(text, stage.root(), reason))
      << where << ": " << text;
  const int64_t resumed = expect_sound(stage.run(), scene, where);
  if (text.empty()) {
    EXPECT_EQ(resumed, scene.saves) << where;
  }
}

}  // namespace

TEST_F(checkpoint_file_faults, any_call_of_a_save_that_fails_is_told_or_does_no_harm) {
  for (const Scene& scene : kScenes) {
    const auto calls = counted(scene);
    size_t salt = 0;
    for (const auto& [fault, reason] : kErrors)
      for (const char* sign : {":", "+:"})
        for (size_t n : sample(calls.size(), 4, salt++))
          expect_told(scene, calls[n - 1], std::to_string(n) + sign + fault, reason);
  }
}

TEST_F(checkpoint_file_faults, any_sync_of_a_save_that_fails_is_told_or_does_no_harm) {
  for (const Scene& scene : kScenes)
    for (const LoggedCall& call : counted(scene))
      if (call.syncs())
        expect_told(scene, call, fmt::format("{}:fsync-fails", call.number), "Input/output error");
}

TEST_F(checkpoint_file_faults, short_writes_and_reads_are_continued) {
  for (const Scene& scene : kScenes) {
    for (const LoggedCall& call : counted(scene)) {
      if (!call.moves_bytes()) continue;
      const Stage stage(scene);
      EXPECT_EQ(
          end_of_child(stage.plan(fmt::format("{}:short", call.number)), [&] { stage.act(); }), "");
      EXPECT_EQ(expect_sound(stage.run(), scene, label(scene, call, "short")), scene.saves);
    }
  }
}

TEST_F(checkpoint_file_faults, any_call_of_a_resume_that_fails_is_told_and_no_other_step_is_taken) {
  PrivateFolder folder;
  const std::string run = folder / "run";
  for (int64_t step : {100, 200, 300}) save(run, step, {.keep = 5});
  write_file_atomic(run + "/latest", "step-00000200\n");  // as after a resume from there
  const auto calls = calls_of(run, [&] { load_mark(run); });
  ASSERT_GT(calls.size(), 10u);
  const auto expect_told = [&](const LoggedCall& call, const std::string& fault,
                               const std::string& reason) {
    const std::string where = fmt::format("{} {} {}", fault, call.kind, call.path);
    const std::string text = end_of_child(fmt::format("only={},{}", run, fault), [&] {
      const int64_t step = load_mark(run);
      check<Error>(step == 200, "step {} was loaded", step);
    });
    // A read is made again where it fails once, and the whole of the index is. What the cache does
    // not give is read from the disk.
    const bool again = call.kind.ends_with("read") || call.kind == "pread-cached" ||
                       contains(call.path, CheckpointIndex::kFileName);
    if (!text.empty() || !again) {
      EXPECT_TRUE(names_a_path_and(text, run, reason)) << where << ": " << text;
    }
  };
  size_t salt = 0;
  for (const auto& [fault, reason] : kErrors)
    for (const std::string sign : {":", "+:"})
      for (size_t n : sample(calls.size(), sign == ":" ? calls.size() : 8, salt++))
        expect_told(calls[n - 1], std::to_string(n) + sign + fault, reason);
  for (const LoggedCall& call : calls) {
    if (!call.moves_bytes()) continue;
    const FileFaults faults(fmt::format("only={},{}:short", run, call.number));
    EXPECT_EQ(load_mark(run), 200) << call.number << " " << call.path;
  }
}

namespace {

/// A record of a scene, and every way in which it may be cut.
class Recorded {
 public:
  explicit Recorded(const Scene& scene)
      : scene_(scene), stage_(scene), disk_(stage_.root(), logs_ / "record") {
    {
      const FileFaults faults(stage_.plan("record=" + (logs_ / "record")));
      stage_.act();
    }
    disk_.read();
  }
  std::vector<LoggedCall>& calls() { return disk_.calls; }
  /// The step that resumes after a cut behind `count` calls. An Error: nothing sound is left.
  int64_t after_cut(size_t count, unsigned variant) const {
    const PrivateFolder cut;
    rebuild(disk_.after(count), cut / "disk", variant);
    return sound_step(cut / "disk" + scene_.folder, scene_);
  }

 private:
  const Scene& scene_;
  Stage stage_;
  PrivateFolder logs_;
  RecordedDisk disk_;
};

}  // namespace

TEST_F(checkpoint_file_faults, after_a_power_cut_the_old_step_or_the_new_is_whole) {
  for (const Scene& scene : kScenes) {
    Recorded recorded(scene);
    std::vector<size_t> counts = sample(recorded.calls().size(), 8, 0);
    counts.push_back(recorded.calls().size());
    for (size_t n : counts)
      for (unsigned variant = 0; variant < (every_call() ? 22 : 4); ++variant) try {
          const int64_t resumed = recorded.after_cut(n, variant);
          EXPECT_TRUE(n < recorded.calls().size() || resumed == scene.saves)
              << scene.name << ": what was saved is lost, cut " << variant;
        } catch (const std::exception& e) {
          ADD_FAILURE() << label(scene, recorded.calls()[n - 1], "cut ") << variant << ": "
                        << e.what();
        }
  }
}

// Otherwise the test above would not notice one that is forgotten.
TEST_F(checkpoint_file_faults, a_power_cut_finds_out_where_a_sync_is_left_out) {
  for (const auto& [scene, least] : {std::pair(kScenes[1], 8u), std::pair(kScenes[5], 1u)}) {
    size_t syncs = 0;
    const size_t count = Recorded(scene).calls().size();
    for (size_t sync = 0; sync < count; ++sync) {
      Recorded recorded(scene);
      LoggedCall& left_out = recorded.calls()[sync];
      if (!left_out.syncs()) continue;
      ++syncs;
      left_out.result = -1;
      bool found = false;
      for (unsigned variant = 0; variant < 20 && !found; ++variant)
        for (size_t n = sync; n <= count && !found; ++n) try {
            found = recorded.after_cut(n, variant) != scene.saves && n == count;
          } catch (const std::exception&) {
            found = true;
          }
      for (size_t n = sync + 1; n < count && !found; ++n)  // another one makes up for it
        found = recorded.calls()[n].syncs() && recorded.calls()[n].path == left_out.path;
      EXPECT_TRUE(found) << label(scene, left_out, "left out");
    }
    EXPECT_GE(syncs, least) << scene.name;
  }
}

namespace {

/// A run that nobody watches: its newest step is damaged, the one before stood aside for a new one
/// when its saver was killed. It goes on from that one, and nothing is lost.
class Unwatched {
 public:
  Unwatched() {
    for (int64_t step : {100, 200, 300}) save(run(), step, {.keep = 5});
    fs::rename(run() + "/step-00000200", run() + "/.tmp-step-00000200-aside-1-00000000");
    spill(run() + "/step-00000300/state.safetensors", "x");
  }
  std::string root() const { return disk_.path(); }
  std::string run() const { return disk_.path() + "/run"; }

 private:
  PrivateFolder disk_{"trireme-disk"};
};

/// "" if the run goes on from step 200 with the damaged one aside; else what is wrong.
std::string goes_on(const std::string& run) {
  try {
    const std::string found = newest_good_step(run);
    check<Error>(found == run + "/step-00000200", "it goes on from '{}'", found);
    check<Error>(load_mark(run) == 200, "`latest` names another step");
    check<Error>(fs::exists(run + "/damaged-step-00000300/state.safetensors"),
                 "the damaged step is lost");
    check<Error>(list_steps(run) == std::vector<int64_t>({100, 200}), "other steps show");
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

TEST_F(checkpoint_file_faults, killed_before_or_after_any_call_an_unwatched_run_goes_on_as_before) {
  size_t count = 0;
  {
    const Unwatched run;
    count = calls_of(run.root(), [&] { newest_good_step(run.run()); }).size();
  }
  ASSERT_GT(count, 20u);
  for (const char* fault : {"kill-before", "kill-after"})
    for (size_t n : sample(count, 40, 0)) {
      const Unwatched run;
      EXPECT_EQ(end_of_child(fmt::format("only={},{}:{}", run.root(), n, fault),
                             [&] { newest_good_step(run.run()); }),
                "killed")
          << n;
      EXPECT_EQ(goes_on(run.run()), "") << fault << " at call " << n;
    }
}

TEST_F(checkpoint_file_faults, any_call_of_an_unwatched_resume_that_fails_is_told_or_does_no_harm) {
  std::vector<LoggedCall> calls;
  {
    const Unwatched run;
    calls = calls_of(run.root(), [&] { newest_good_step(run.run()); });
  }
  for (const auto& [fault, reason] : kErrors)
    for (const char* sign : {":", "+:"})
      for (size_t n : sample(calls.size(), 12, 1)) {
        const Unwatched run;
        const std::string where =
            fmt::format("{}{}{} {} {}", n, sign, fault, calls[n - 1].kind, calls[n - 1].path);
        const std::string text =
            end_of_child(fmt::format("only={},{}{}{}", run.root(), n, sign, fault), [&] {
              const std::string found = newest_good_step(run.run());
              check<Error>(found == run.run() + "/step-00000200", "it goes on from '{}'", found);
            });
        EXPECT_TRUE(text.empty() || names_a_path_and(text, run.root(), reason))
            << where << ": " << text;
        EXPECT_EQ(goes_on(run.run()), "") << where;
      }
}

TEST_F(checkpoint_file_faults, after_a_power_cut_an_unwatched_run_goes_on_as_before) {
  const Unwatched run;
  PrivateFolder logs;
  RecordedDisk disk(run.root(), logs / "record");
  {
    const FileFaults faults("only=" + run.root() + ",record=" + (logs / "record"));
    newest_good_step(run.run());
  }
  disk.read();
  for (size_t n = 0; n <= disk.calls.size(); ++n)
    for (unsigned variant = 0; variant < (every_call() ? 22 : 3); ++variant) {
      const PrivateFolder cut;
      rebuild(disk.after(n), cut / "disk", variant);
      EXPECT_EQ(goes_on(cut / "disk/run"), "") << "call " << n << ", cut " << variant;
    }
}

TEST_F(checkpoint_file_faults,
       a_step_that_stood_aside_when_its_saver_was_killed_is_loaded_and_put_back) {
  const Scene& scene = kScenes[3];
  size_t second = 0;  // the rename that follows the one which steps aside
  for (const LoggedCall& call : counted(scene))
    if (call.kind == "rename" && contains(call.to, "-aside-"))
      second = static_cast<size_t>(call.number) + 1;
  ASSERT_GT(second, 0u);
  const Stage stage(scene);
  EXPECT_EQ(end_of_child(stage.plan(fmt::format("{}:kill-before", second)), [&] { stage.act(); }),
            "killed");
  EXPECT_TRUE(list_steps(stage.run()).empty());
  EXPECT_EQ(load_mark(stage.run()), 100);
  save(stage.run(), 200, {.keep = 2});
  EXPECT_EQ(list_steps(stage.run()), (std::vector<int64_t>{100, 200}));
  EXPECT_EQ(load_mark(stage.run() + "/step-00000100"), 100);
}

TEST_F(checkpoint_file_faults,
       what_a_damaged_step_is_told_with_does_not_hide_in_a_folder_that_cannot_be_listed) {
  PrivateFolder run;
  save(run.path(), 100);
  spill(run / "step-00000100/state.safetensors", "x");
  std::string text;
  size_t lists = 0;
  for (const LoggedCall& call :
       calls_of(run.path(), [&] { text = message_of<Corrupt>([&] { load_mark(run.path()); }); }))
    if (call.kind == "opendir") lists = static_cast<size_t>(call.number);
  ASSERT_GT(lists, 0u);
  const FileFaults faults(fmt::format("only={},{}:EIO", run.path(), lists));
  text = message_of<Corrupt>([&] { load_mark(run.path()); });
  EXPECT_TRUE(contains(text, "state.safetensors has 1 bytes") && contains(text, "is not known") &&
              contains(text, "Input/output error"))
      << text;
}

}  // namespace file_faults_test
