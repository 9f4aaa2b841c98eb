// SPDX-License-Identifier: Apache-2.0
// checkpoint.async: what is written while training goes on is what would have been written while it
// waited, and is known to the run when it is published.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "tests/support/captured_log.h"
#include "tests/support/refusals.h"
#include "tests/train/run_folders.h"
#include "trireme/base/error.h"
#include "trireme/base/failpoint.h"
#include "trireme/checkpoint/async_saver.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/planner/memory_plan.h"
#include "trireme/train/saving.h"
#include "trireme/train/trainer.h"

namespace async_saves_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

using Steps = std::vector<int64_t>;
using Outcome = std::vector<std::string>;  // of each rank: what it threw, or ""

struct FailpointsHere {
  explicit FailpointsHere(const std::string& text) { set_failpoints(text); }
  ~FailpointsHere() { set_failpoints(""); }
};

struct Watch {
  int stop_after = 0;                             // in that step rank 1 is asked to stop
  std::function<void(int64_t)> before_step = {};  // on rank 0, with the steps done
  std::vector<std::string>* said = nullptr;
  bool resume = false;
};

Outcome train_on_two(const Config& config, const std::string& run_dir, const Watch& watch = {}) {
  Outcome thrown(2);
  run_threads(
      2,
      [&](Group g) {
        TrainOptions options;
        options.run_dir = run_dir;
        if (watch.resume) options.resume = run_dir;
        if (watch.said) options.say = [&](const std::string& line) { watch.said->push_back(line); };
        int looks = 0;
        options.stop_asked = [&] {
          if (g.rank() == 0 && watch.before_step) watch.before_step(looks);
          ++looks;
          return watch.stop_after > 0 && g.rank() == 1 && looks == watch.stop_after ? 15 : 0;
        };
        try {
          train(config, g, options);
        } catch (const ResourceError& e) {
          thrown[static_cast<size_t>(g.rank())] = e.what();
        }
      },
      std::chrono::seconds(120));
  return thrown;
}

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Sets kAsync = {"checkpoint.async=true", "checkpoint.keep=99"};

/// Every file of every step, but the indices, whose bytes are those of their files.
std::map<std::string, std::string> files_of(const std::string& run_dir) {
  std::map<std::string, std::string> files;
  for (int64_t step : list_steps(run_dir))
    for (const auto& entry :
         std::filesystem::directory_iterator(run_dir + "/" + step_folder_name(step)))
      files[step_folder_name(step) + "/" + entry.path().filename().string()] =
          read_file(entry.path());
  return files;
}

size_t hidden_in(const std::string& run_dir) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir))
    n += entry.path().filename().string().front() == '.';
  return n;
}

std::vector<std::string> saved_lines(const std::vector<std::string>& said) {
  std::vector<std::string> saved;
  for (const std::string& line : said)
    if (line.rfind("saved ", 0) == 0) saved.push_back(line);
  return saved;
}

}  // namespace

TEST(train_async_saves, in_every_layout_the_files_are_those_of_saves_that_wait) {
  PrivateFolder disk;
  const std::string path = "zero_optimization.offload_optimizer.nvme_path=" + disk.path();
  const Sets states_on_disk = {"zero_optimization.offload_optimizer.device=nvme", path,
                               "zero_optimization.sub_group_size=4096"};
  const Sets all_on_disk =
      states_on_disk + Sets{"zero_optimization.offload_param.device=nvme",
                            "zero_optimization.offload_param.nvme_path=" + disk.path()};
  for (const Sets& sets :
       {Sets{}, Sets{"zero_optimization.stage=1"}, Sets{"zero_optimization.stage=2"},
        Sets{"zero_optimization.stage=3"}, Sets{"zero_optimization.stage=2", "bf16.enabled=true"},
        Sets{"zero_optimization.stage=1", "zero_optimization.share_weights=true"},
        Sets{"averaging.type=local_sgd", "averaging.period=4"},
        Sets{"averaging.type=diloco", "averaging.period=4"},
        Sets{"compression.type=int8", "compression.start_step=0"},
        Sets{"zero_optimization.stage=2"} + states_on_disk,
        Sets{"zero_optimization.stage=3"} + all_on_disk}) {
    Folders f;
    const Sets every = Sets{"checkpoint.every=1"} + sets;
    train_on_two(tiny_gpt(f.corpus, every + Sets{"checkpoint.keep=99"}), f.run("waits"));
    train_on_two(tiny_gpt(f.corpus, every + kAsync), f.run("async"));
    const auto waits = files_of(f.run("waits")), async = files_of(f.run("async"));
    ASSERT_GE(waits.size(), 6u * 2);
    ASSERT_EQ(list_steps(f.run("async")), (Steps{1, 2, 3, 4, 5, 6}));
    for (const auto& [name, bytes] : waits) {
      ASSERT_TRUE(async.contains(name)) << name;
      EXPECT_TRUE(async.at(name) == bytes)
          << (sets.empty() ? "plain" : sets.back()) << ": " << name << " has other bytes";
    }
    EXPECT_EQ(async.size(), waits.size());
    EXPECT_EQ(hidden_in(f.run("async")), 0u);
  }
}

// 172 parameters of three ranks: the last one owns none.
TEST(train_async_saves, a_rank_that_owns_nothing_saves_and_resumes_with_the_others) {
  for (const char* stage : {"1", "2", "3"})
    for (const char* async : {"false", "true"}) {
      PrivateFolder run;
      const auto steps = [&](const char* n) {
        return Config::from_text("tiny.json", R"({
              "model": {"type": "mlp", "inputs": 16, "hidden": [8], "outputs": 4},
              "data": {"type": "dummy"}, "train_micro_batch_size_per_gpu": 4,
              "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}})",
                                 {std::string("zero_optimization.stage=") + stage,
                                  std::string("checkpoint.async=") + async, "checkpoint.every=1",
                                  std::string("training.steps=") + n});
      };
      for (const char* n : {"3", "5"}) {
        const Config config = steps(n);
        run_threads(3, [&](Group g) {
          TrainOptions options;
          options.run_dir = run.path();
          if (n[0] == '5') options.resume = run.path();
          train(config, g, options);
        });
      }
      EXPECT_EQ(list_steps(run.path()), (Steps{4, 5}));
      verify_checkpoint(run / "step-00000005");
    }
}

TEST(train_async_saves, training_goes_on_while_a_step_is_written_and_tells_when_it_is_there) {
  Folders f;
  const FailpointsHere slow("checkpoint.write@1=sleep(1500)");  // of the first step alone
  std::vector<std::string> said;
  std::set<int64_t> seen_at;  // steps that had been done when step 2 was there
  size_t told_before = 0;
  Watch watch;
  watch.said = &said;
  watch.before_step = [&](int64_t done) {
    const bool there = std::filesystem::exists(f.run("a") + "/step-00000002");
    if (there) seen_at.insert(done);
    if (!there) told_before = std::max(told_before, saved_lines(said).size());
    EXPECT_EQ(std::filesystem::exists(f.run("a") + "/latest"), there) << done;
  };
  train_on_two(tiny_gpt(f.corpus, Sets{"checkpoint.keep_every=2", "training.steps=5"} + kAsync),
               f.run("a"), watch);
  EXPECT_FALSE(seen_at.contains(2)) << "step 3 waited for the disk";
  EXPECT_FALSE(seen_at.contains(3)) << "step 4 waited for the disk";
  EXPECT_TRUE(seen_at.contains(4)) << "the save of step 4 waits for that of step 2";
  EXPECT_EQ(told_before, 0u);
  EXPECT_EQ(saved_lines(said),
            (std::vector<std::string>{"saved " + f.run("a") + "/step-00000002",
                                      "saved " + f.run("a") + "/step-00000004",
                                      "saved " + f.run("a") + "/step-00000005"}));
  EXPECT_EQ(find_checkpoint(f.run("a")), f.run("a") + "/step-00000005");
}

TEST(train_async_saves, older_steps_go_when_a_newer_one_is_there_and_not_before) {
  Folders f;
  const FailpointsHere slow("checkpoint.before_publish@3=sleep(700)");
  bool both = false;
  Watch watch;
  watch.before_step = [&](int64_t done) {
    // Step 3 is under way: steps 1 and 2 are the two that stay.
    if (done == 3) both = list_steps(f.run("a")) == Steps{1, 2};
  };
  train_on_two(tiny_gpt(f.corpus, {"checkpoint.async=true", "checkpoint.every=1"}), f.run("a"),
               watch);
  EXPECT_TRUE(both);
  EXPECT_EQ(list_steps(f.run("a")), (Steps{5, 6}));
  EXPECT_EQ(hidden_in(f.run("a")), 0u);
}

TEST(train_async_saves, the_best_stay_as_with_saves_that_wait) {
  Folders f;
  const Sets jumping = {"training.steps=8",          "training.eval_every=1",
                        "training.eval_batches=2",   "optimizer.params.lr=0.3",
                        "checkpoint.keep=1",         "checkpoint.keep_best=2",
                        "zero_optimization.stage=2", "checkpoint.keep_every=5"};
  train_on_two(tiny_gpt(f.corpus, jumping), f.run("waits"));
  train_on_two(tiny_gpt(f.corpus, jumping + Sets{"checkpoint.async=true"}), f.run("async"));
  EXPECT_EQ(list_steps(f.run("async")), list_steps(f.run("waits")));
  for (int64_t step : list_steps(f.run("waits"))) {
    const std::string name = "/" + step_folder_name(step);
    EXPECT_EQ(number_in_step(f.run("async") + name, kHeldOutLoss),
              number_in_step(f.run("waits") + name, kHeldOutLoss));
  }
}

TEST(train_async_saves, a_stopped_run_goes_on_with_the_bits_of_one_that_was_not) {
  for (const Sets& sets : {Sets{}, Sets{"zero_optimization.stage=3"}}) {
    Folders f;
    const Config config = tiny_gpt(f.corpus, Sets{"checkpoint.every=1"} + kAsync + sets);
    train_on_two(config, f.run("whole"));
    Watch stop;
    stop.stop_after = 3;
    train_on_two(config, f.run("halves"), stop);
    EXPECT_EQ(list_steps(f.run("halves")), (Steps{1, 2, 3})) << "the step of the signal is there";
    Watch resume;
    resume.resume = true;
    train_on_two(config, f.run("halves"), resume);
    EXPECT_TRUE(all_bytes_of(f.run("halves")) == all_bytes_of(f.run("whole")));
  }
}

TEST(train_async_saves, a_save_that_fails_is_one_warning_with_rank_path_and_reason) {
  for (int failing : {0, 1}) {
    Folders f;
    const CapturedLog log;
    const FailpointsHere full(fmt::format("checkpoint.write@1#{}=error(28)", failing));
    const Config config =
        tiny_gpt(f.corpus, Sets{"checkpoint.every=2", "zero_optimization.stage=3"} + kAsync);
    EXPECT_EQ(train_on_two(config, f.run("a")), (Outcome{"", ""}));
    EXPECT_EQ(list_steps(f.run("a")), (Steps{4, 6}));
    const auto told = log.with("checkpoint of step 2 was not saved");
    ASSERT_EQ(told.size(), 1u);
    EXPECT_TRUE(has(told[0], fmt::format("rank {} on ", failing))) << told[0];
    EXPECT_TRUE(has(told[0], "cannot write " + f.run("a") + "/.tmp-")) << told[0];
    EXPECT_TRUE(has(told[0], "No space left on device")) << told[0];
    EXPECT_TRUE(has(told[0], "The run goes on (checkpoint.on_error is warn)")) << told[0];
    EXPECT_EQ(hidden_in(f.run("a")), 0u);
  }
}

TEST(train_async_saves, with_on_error_stop_it_ends_all_ranks_with_one_sentence) {
  for (const Sets& sets : {Sets{}, Sets{"zero_optimization.stage=3"}}) {
    Folders f;
    const FailpointsHere full("checkpoint.write@1=error(28)");
    const Config config =
        tiny_gpt(f.corpus, Sets{"checkpoint.every=2", "checkpoint.on_error=stop"} + kAsync + sets);
    const Outcome thrown = train_on_two(config, f.run("a"));
    EXPECT_TRUE(has(thrown[0], "checkpoint of step 2 was not saved")) << thrown[0];
    EXPECT_TRUE(has(thrown[0], "No space left on device")) << thrown[0];
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_EQ(list_steps(f.run("a")), Steps{}) << "it ended before it saved again";
  }
}

TEST(train_async_saves, the_last_save_and_that_of_a_signal_must_succeed) {
  for (int stop_after : {0, 3}) {
    Folders f;
    const FailpointsHere full("checkpoint.write=error(28)");
    Watch watch;
    watch.stop_after = stop_after;
    const Outcome thrown =
        train_on_two(tiny_gpt(f.corpus, Sets{"checkpoint.every=1"} + kAsync), f.run("a"), watch);
    EXPECT_TRUE(has(thrown[0], stop_after ? "checkpoint of step 3 was not saved"
                                          : "checkpoint of step 6 was not saved"))
        << thrown[0];
    EXPECT_EQ(thrown[0], thrown[1]);
  }
}

// Step 6 is due, and the last one: it is written once, and where that fails, once more.
TEST(train_async_saves, a_step_that_is_being_saved_is_not_saved_twice) {
  Folders f;
  std::vector<std::string> said;
  Watch watch;
  watch.said = &said;
  {
    const FailpointsHere one("checkpoint.before_publish@4=error(5)");
    train_on_two(tiny_gpt(f.corpus, Sets{"checkpoint.every=2"} + kAsync), f.run("a"), watch);
  }
  EXPECT_EQ(saved_lines(said).size(), 3u);
  EXPECT_EQ(list_steps(f.run("a")), (Steps{2, 4, 6}));
  const CapturedLog log;
  const FailpointsHere third("checkpoint.before_publish@3=error(5)");
  EXPECT_EQ(train_on_two(tiny_gpt(f.corpus, Sets{"checkpoint.every=2"} + kAsync), f.run("b")),
            (Outcome{"", ""}));
  EXPECT_EQ(log.with("checkpoint of step 6 was not saved").size(), 1u);
  EXPECT_EQ(list_steps(f.run("b")), (Steps{2, 4, 6}));
}

TEST(train_async_saves, a_run_without_a_checkpoint_at_its_end_waits_for_the_one_under_way) {
  Folders f;
  const FailpointsHere slow("checkpoint.before_publish=sleep(400)");
  train_on_two(tiny_gpt(f.corpus, Sets{"checkpoint.every=5", "checkpoint.at_end=false"} + kAsync),
               f.run("a"));
  EXPECT_EQ(list_steps(f.run("a")), (Steps{5}));
  EXPECT_EQ(hidden_in(f.run("a")), 0u);
}

TEST(train_async_saves, a_run_folder_that_disappears_ends_the_run_as_it_does_else) {
  Folders f;
  const std::string run = f.run("a");
  const FailpointsHere slow("checkpoint.write=sleep(20)");
  Watch watch;
  watch.before_step = [&](int64_t done) {
    if (done == 3) std::filesystem::rename(run, run + "-moved");
  };
  const auto begin = Clock::now();
  std::string thrown;
  try {
    thrown = train_on_two(tiny_gpt(f.corpus, Sets{"checkpoint.every=1"} + kAsync), run, watch)[0];
  } catch (const Error& e) {
    thrown = e.what();
  }
  EXPECT_TRUE(has(thrown, "was deleted, moved or replaced")) << thrown;
  EXPECT_LT(seconds_since(begin), 30);
  EXPECT_FALSE(std::filesystem::exists(run));
}

TEST(train_async_saves, summary_counts_the_two_copies_that_a_rank_keeps) {
  PrivateFolder disk;
  const Sets large = {"data.type=dummy",    "model.layers=4",     "model.width=256",
                      "train_batch_size=4", "checkpoint.every=1", "checkpoint.async=true"};
  for (const Sets& sets :
       {Sets{}, Sets{"zero_optimization.stage=1"}, Sets{"zero_optimization.stage=2"},
        Sets{"zero_optimization.stage=3"}, Sets{"zero_optimization.stage=2", "bf16.enabled=true"},
        Sets{"averaging.type=local_sgd"}, Sets{"averaging.type=diloco"},
        Sets{"compression.type=int8"},
        Sets{"zero_optimization.stage=2", "zero_optimization.offload_optimizer.device=nvme",
             "zero_optimization.offload_optimizer.nvme_path=" + disk.path(),
             "zero_optimization.sub_group_size=100000"}}) {
    const Config config = tiny_gpt("unused", large + sets);
    const int64_t planned = plan_memory(config, 2).rank.snapshots;
    std::array<int64_t, 2> held{};
    PrivateFolder run_dir;
    run_threads(
        2,
        [&](Group g) {
          trireme::Run run = build_run(config, g);
          AsyncSaver saver(run_dir.path(), g);
          for (int64_t step : {1, 2}) {
            run.step = step;
            save_run(run, saver, 2);
          }
          saver.wait();
          held[static_cast<size_t>(g.rank())] = saver.memory_bytes();
        },
        std::chrono::seconds(120));
    ASSERT_GT(planned, 4 << 20);
    for (int64_t bytes : held)
      EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(planned),
                  (2 << 20) + 0.01 * static_cast<double>(planned))
          << (sets.empty() ? "plain" : sets[0]);
  }
  EXPECT_EQ(
      plan_memory(tiny_gpt("unused", {"data.type=dummy", "checkpoint.every=1"}), 2).rank.snapshots,
      0);
}

// A table of positions that ranks of tensor parallelism hold alike, and an embedding of which the
// last stage has a copy: megabytes that are to be counted once.
TEST(train_async_saves, summary_counts_what_ranks_of_a_divided_model_save) {
  const Sets large = {"data.type=dummy",    "model.layers=4",     "model.width=256",
                      "train_batch_size=4", "checkpoint.every=1", "checkpoint.async=true",
                      "model.context=4096", "model.vocab=8192",   "model.tied_head=true"};
  struct Row {
    int ranks;
    Sets sets;
  };
  for (const auto& [ranks, sets] :
       {Row{2, {"parallelism.tp=2"}}, Row{2, {"parallelism.pp=2"}},
        Row{4, {"parallelism.tp=2", "zero_optimization.stage=1"}},
        Row{4, {"parallelism.pp=2", "parallelism.tp=2"}},
        Row{4, {"parallelism.tp=2", "parallelism.sequence_parallel=true"}}}) {
    const Config config = tiny_gpt("unused", large + sets);
    const MemoryPlan plan = plan_memory(config, ranks);
    PrivateFolder run_dir;
    run_threads(
        ranks,
        [&, &ranks = ranks, &sets = sets](Group g) {
          trireme::Run run = build_run(config, g);
          AsyncSaver saver(run_dir.path(), g);
          for (int64_t step : {1, 2}) {
            run.step = step;
            save_run(run, saver, 2);
          }
          saver.wait();
          const auto stage =
              static_cast<size_t>(plan.pipeline.empty() ? 0 : run.mesh.coordinate("pp"));
          const int64_t planned =
              plan.pipeline.empty() ? plan.rank.snapshots : plan.pipeline[stage].memory.snapshots;
          const int64_t held = saver.memory_bytes();
          EXPECT_NEAR(static_cast<double>(held), static_cast<double>(planned),
                      (2 << 20) + 0.01 * static_cast<double>(planned))
              << fmt::format("{} on {} ranks, rank {}", sets.back(), ranks, g.rank());
        },
        std::chrono::seconds(120));
  }
}

}  // namespace async_saves_test
