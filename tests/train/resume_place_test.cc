// SPDX-License-Identifier: Apache-2.0
// A resumed run's place in the data, whatever the size of its steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "tests/support/refusals.h"
#include "tests/train/programs.h"
#include "tests/train/run_folders.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/index.h"

namespace resume_place_test {

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr int64_t kSamples = 256;

/// Digits that write down which of them were asked for, over all ranks.
struct Recorded final : DataSource {
  struct Log {
    std::mutex mutex;
    std::vector<int64_t> ids;
  };
  Recorded(std::shared_ptr<Log> l, int64_t samples)
      : digits(make_digits({samples, 42, "train"})), log(std::move(l)) {}
  int64_t size() const override { return digits->size(); }
  MicroBatch get(const std::vector<int64_t>& ids) const override {
    std::lock_guard lock(log->mutex);
    log->ids.insert(log->ids.end(), ids.begin(), ids.end());
    return digits->get(ids);
  }
  std::string describe() const override { return "recorded digits"; }
  std::shared_ptr<const DataSource> digits;
  std::shared_ptr<Log> log;
};

struct Program : DigitsProgram {
  Program(std::shared_ptr<Recorded::Log> log, int64_t samples, int batches)
      : log_(std::move(log)), samples_(samples), batches_(batches) {}
  Sources data(const Config&) override {
    return {std::make_shared<Recorded>(log_, samples_), {}, "digits"};
  }
  void step(Trainer& t) override {
    // A step that looks at several batches, and updates with the last.
    for (int i = 1; i < batches_; ++i) t.next_batch();
    t.update("all", t.next_batch());
  }
  std::shared_ptr<Recorded::Log> log_;
  int64_t samples_;
  int batches_;
};

struct Ran {
  std::vector<int64_t> ids;  // sorted
  TrainResult result;
  std::vector<std::string> said;  // by rank 0
};

/// Trains on n ranks into `folder`, and further from `from` if that is given.
Ran ran(int n, const Sets& sets, const std::string& folder, const std::string& from = "",
        int batches = 1, int64_t samples = kSamples) {
  Sets all = {"data.workers=0", "checkpoint.every=1", "checkpoint.keep=99"};
  all.insert(all.end(), sets.begin(), sets.end());
  const Config config = Config::from_text("p.json", R"({
    "gradient_clipping": 0,
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}}})",
                                          all);
  auto log = std::make_shared<Recorded::Log>();
  Ran ran;
  run_threads(
      n,
      [&](Group g) {
        Program program(log, samples, batches);
        TrainOptions options;
        options.run_dir = folder;
        if (!from.empty()) options.resume = from;
        options.say = [&](const std::string& line) { ran.said.push_back(line); };
        const TrainResult result = train(program, config, g, options);
        if (g.rank() == 0) ran.result = result;
      },
      std::chrono::seconds(60));
  ran.ids = log->ids;
  std::sort(ran.ids.begin(), ran.ids.end());
  return ran;
}

bool said(const Ran& run, const std::string& part) {
  return std::any_of(run.said.begin(), run.said.end(),
                     [&](const std::string& line) { return has(line, part); });
}

/// How often each sample was read.
std::map<int64_t, int> times(std::initializer_list<const std::vector<int64_t>*> lists) {
  std::map<int64_t, int> all;
  for (const auto* ids : lists)
    for (const int64_t id : *ids) ++all[id];
  return all;
}

}  // namespace

TEST(train_resume_place, another_number_of_samples_a_step_reads_the_rest_of_the_epoch_once) {
  for (const std::string stage : {"0", "3"}) {
    Folders f;
    const Sets zero{"zero_optimization.stage=" + stage};
    Sets first = zero, second = zero;
    first.insert(first.end(), {"train_batch_size=16", "training.steps=5"});
    second.insert(second.end(), {"train_batch_size=8", "training.steps=0", "training.epochs=1"});
    const Ran a = ran(2, first, f.run("a"));
    ASSERT_EQ(a.ids.size(), 80u);
    const Ran b = ran(2, second, f.run("b"), f.run("a"));
    EXPECT_EQ(b.result.steps, 5 + (kSamples - 80) / 8) << "the epoch ends where its samples end";
    const auto all = times({&a.ids, &b.ids});
    EXPECT_EQ(all.size(), static_cast<size_t>(kSamples));
    for (const auto& [id, n] : all) EXPECT_EQ(n, 1) << id;
    EXPECT_TRUE(
        said(b, "going on after step 5 with 8 samples a step (until now 16), 80 of epoch 0"))
        << b.said[0];
    // And once more, from a step of the second run, on one rank and with large steps.
    Sets third = zero;
    third.insert(third.end(), {"train_batch_size=64", "training.steps=11"});
    const Ran c = ran(1, third, f.run("c"), f.run("b") + "/" + step_folder_name(9));
    ASSERT_EQ(c.ids.size(), 2 * 64u);
    std::vector<int64_t> until_9 = a.ids;
    const Ran again = ran(
        2,
        [&] {
          Sets s = zero;
          s.insert(s.end(), {"train_batch_size=8", "training.steps=9"});
          return s;
        }(),
        f.run("again"), f.run("a"));
    for (const auto& [id, n] : times({&a.ids, &again.ids, &c.ids})) EXPECT_EQ(n, 1) << id;
  }
}

// 15 steps of 16 samples an epoch, which leave 10; or 16 steps, of which the last has 10.
TEST(train_resume_place,
     on_other_ranks_the_rest_of_an_epoch_is_read_once_and_its_tail_is_the_same) {
  constexpr int64_t kWithTail = 250;
  for (const bool drop_last : {true, false})
    for (const auto& [one, other] : {std::pair{2, 4}, {4, 2}}) {
      const std::string stage = one == 2 ? "0" : "3";
      Folders f;
      const auto until = [&](int n, int64_t steps, const std::string& to,
                             const std::string& from = "") {
        return ran(n,
                   {"train_batch_size=16", "checkpoint.every=99",
                    "zero_optimization.stage=" + stage,
                    fmt::format("training.drop_last={}", drop_last),
                    fmt::format("training.steps={}", steps)},
                   f.run(to), from.empty() ? "" : f.run(from), 1, kWithTail)
            .ids;
      };
      const int64_t epoch = drop_last ? 15 : 16;
      const auto calm = until(2, epoch, "calm");
      const auto calm_next = until(2, 2 * epoch, "calm_next", "calm");
      EXPECT_EQ(calm.size(), drop_last ? 240u : 250u);
      const auto a = until(one, 7, "a");
      const auto b = until(other, epoch, "b", "a");
      const auto c = until(one, epoch + 9, "c", "b");
      const auto d = until(other, 2 * epoch, "d", "c");
      // The same ids are read, so the same are dropped, in this epoch and in the next.
      EXPECT_EQ(times({&a, &b}), times({&calm}));
      EXPECT_EQ(times({&c, &d}), times({&calm_next}));
      for (const auto& [id, n] : times({&calm})) EXPECT_EQ(n, 1) << id;
      for (const auto& [id, n] : times({&calm_next})) EXPECT_EQ(n, 1) << id;
      EXPECT_EQ(calm == calm_next, !drop_last) << "each epoch drops others";
      EXPECT_EQ(a.size(), 7 * 16u);
      EXPECT_EQ(c.size(), 9 * 16u);
    }
}

TEST(train_resume_place, a_program_that_takes_several_batches_a_step_goes_on_behind_all_of_them) {
  Folders f;
  const Ran a = ran(2, {"train_batch_size=16", "training.steps=4"}, f.run("a"), "", 2);
  ASSERT_EQ(a.ids.size(), 128u);
  const Ran b = ran(2, {"train_batch_size=16", "training.steps=8"}, f.run("b"), f.run("a"), 2);
  ASSERT_EQ(b.ids.size(), 128u);
  for (const auto& [id, n] : times({&a.ids, &b.ids})) EXPECT_EQ(n, 1) << id;
}

TEST(train_resume_place, a_checkpoint_of_an_older_version_goes_on_with_as_many_samples_alone) {
  Folders f;
  const Sets sets{"train_batch_size=16", "training.steps=3"};
  const Ran a = ran(1, sets, f.run("a"));
  // As it was written before the place in the data was.
  const std::string path = find_checkpoint(f.run("a")) + "/" + CheckpointIndex::kFileName;
  CheckpointIndex index = parse_index(read_file(path), path);
  EXPECT_EQ(std::erase_if(index.values, [](const auto& v) { return v.first.starts_with("data."); }),
            4u);
  write_file_atomic(path, index_text(index));
  const Ran b = ran(1, {"train_batch_size=16", "training.steps=16"}, f.run("b"), f.run("a"));
  for (const auto& [id, n] : times({&a.ids, &b.ids})) EXPECT_EQ(n, 1) << id;
  std::string text;
  try {
    ran(1, {"train_batch_size=8", "training.steps=16"}, f.run("c"), f.run("a"));
  } catch (const UsageError& e) {
    text = e.what();
  }
  EXPECT_TRUE(has(text, "16 samples a step, this run asks for 8")) << text;
}

TEST(train_resume_place, a_place_that_cannot_be_is_refused_with_the_name_of_the_index) {
  Folders f;
  ran(1, {"train_batch_size=16", "training.steps=3"}, f.run("a"));
  const std::string path = find_checkpoint(f.run("a")) + "/" + CheckpointIndex::kFileName;
  CheckpointIndex index = parse_index(read_file(path), path);
  index.values["data.sample"] = int64_t{-16};
  write_file_atomic(path, index_text(index));
  try {
    ran(2, {"train_batch_size=16", "training.steps=16"}, f.run("b"), f.run("a"));
    ADD_FAILURE() << "it went on";
  } catch (const Corrupt& e) {
    EXPECT_TRUE(has(e.what(), path)) << e.what();
    EXPECT_TRUE(has(e.what(), "is no place in any data")) << e.what();
  }
}

}  // namespace resume_place_test
