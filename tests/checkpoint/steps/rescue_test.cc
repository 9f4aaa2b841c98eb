// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/rescue.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/checkpoint/steps/pretend_worker.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_faults.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/saver_lock.h"
#include "trireme/checkpoint/steps/step_reader.h"
#include "trireme/checkpoint/steps/verify_step.h"

namespace rescue_test {

using namespace trireme;
using namespace trireme::test;
namespace fs = std::filesystem;

namespace {

using Steps = std::vector<int64_t>;

class checkpoint_steps_rescue : public ::testing::Test {
 protected:
  checkpoint_steps_rescue() { fs::create_directory(run_); }
  ~checkpoint_steps_rescue() override { set_file_faults(""); }

  PretendWorker worker(int rank, int64_t step = 7) const {
    PretendWorker w;
    w.rank = rank, w.run_dir = run_, w.step = step;
    w.save = ".tmp-" + step_folder_name(step) + "-new-1-0badcafe";
    return w;
  }
  void hand(const PretendWorker& w) { hand(w.bytes(), w.rank); }
  void hand(const std::string& bytes, int rank) { handed_.push_back({memory_of(bytes), rank}); }
  /// Both ranks of a step.
  void hand_step(int64_t step, float value = 1) {
    for (int rank : {0, 1}) {
      PretendWorker w = worker(rank, step);
      w.value = value;
      hand(w);
    }
  }
  std::string text() {
    std::string all;
    saved_ = 0;
    for (const RescueReport& r : rescue_snapshots(handed_)) saved_ += r.saved, all += r.text + "\n";
    return all;
  }
  std::vector<float> weights(int64_t step) const {
    StepReader reader(run_ + "/" + step_folder_name(step));
    const auto bytes = reader.read("model.w", 0, 8);
    std::vector<float> list(8);
    std::memcpy(list.data(), bytes.data(), bytes.size());
    return list;
  }
  size_t hidden() const {
    size_t n = 0;
    for (const auto& item : fs::directory_iterator(run_))
      n += item.path().filename().string().front() == '.';
    return n;
  }

  PrivateFolder folder_;
  const std::string run_ = folder_ / "run";
  std::vector<HandedSnapshot> handed_;
  int saved_ = 0;
};

}  // namespace

TEST_F(checkpoint_steps_rescue, what_all_ranks_have_in_memory_becomes_a_step) {
  hand_step(7);
  fs::create_directory(run_ + "/.tmp-step-00000007-new-1-0badcafe");  // what their saver had begun
  const std::string said = text();
  EXPECT_EQ(saved_, 1);
  EXPECT_NE(said.find("is saved in " + run_ + "/step-00000007"), std::string::npos) << said;
  EXPECT_TRUE(verify_step(run_ + "/step-00000007").good());
  EXPECT_EQ(weights(7), (std::vector<float>{1, 1, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(read_file(run_ + "/latest"), "step-00000007\n");
  EXPECT_EQ(integer_in_step(run_ + "/step-00000007", "train.step"), 7);
  const CheckpointIndex index = read_step_index(run_ + "/step-00000007");
  EXPECT_EQ(index.world, 2);
  EXPECT_EQ(index.layout, "test");
  EXPECT_EQ(hidden(), 0u);
}

TEST_F(checkpoint_steps_rescue, large_parts_are_written_in_pieces_and_keep_their_bytes) {
  for (int rank : {0, 1}) {
    PretendWorker w = worker(rank);
    w.numel = (int64_t{18} << 18) + 3;  // some 18 MiB
    w.sums = rank == 0;
    hand(w);
  }
  text();
  EXPECT_EQ(saved_, 1);
  EXPECT_TRUE(verify_step(run_ + "/step-00000007").good());
}

TEST_F(checkpoint_steps_rescue, the_newest_complete_step_is_taken_and_old_ones_go_as_keep_says) {
  hand_step(3);
  hand_step(5);
  text();
  EXPECT_EQ(list_steps(run_), Steps{5});
  handed_.clear();
  hand_step(6);
  hand_step(7);
  hand(worker(0, 9));  // rank 1 had not copied its part
  PretendWorker made = worker(1, 9);
  made.complete = false;
  hand(made);
  EXPECT_EQ(text().find("step 9"), std::string::npos);
  EXPECT_EQ(list_steps(run_), (Steps{5, 7}));
}

TEST_F(checkpoint_steps_rescue, a_published_or_older_step_is_left_alone_in_silence) {
  hand_step(7, 1);
  text();
  handed_.clear();
  hand_step(7, 50);
  hand_step(6, 50);
  EXPECT_EQ(text(), "");
  EXPECT_EQ(list_steps(run_), Steps{7});
  EXPECT_EQ(weights(7)[0], 1);
  // But one that takes the place of an older branch's, and was on its way, is not published yet.
  fs::create_directory(run_ + "/.tmp-step-00000007-new-1-0badcafe");
  text();
  EXPECT_EQ(saved_, 1);
  EXPECT_EQ(weights(7)[0], 50);
}

TEST_F(checkpoint_steps_rescue, two_saves_of_a_step_are_not_mixed) {
  hand(worker(0));
  PretendWorker other = worker(1);
  other.save = ".tmp-step-00000007-new-2-12345678";
  hand(other);
  EXPECT_EQ(text(), "");
  EXPECT_EQ(list_steps(run_), Steps{});
}

TEST_F(checkpoint_steps_rescue, a_rank_of_another_host_is_named_and_nothing_is_written) {
  hand(worker(0));
  const std::string said = text();
  EXPECT_EQ(saved_, 0);
  EXPECT_NE(said.find("rank 1 of 2 is not one of them"), std::string::npos) << said;
  EXPECT_EQ(list_steps(run_), Steps{});
}

TEST_F(checkpoint_steps_rescue, each_run_folder_gets_its_own_step) {
  hand_step(7);
  for (int rank : {0, 1}) {
    PretendWorker w = worker(rank, 4);
    w.run_dir = folder_ / "other";
    hand(w);
  }
  fs::create_directory(folder_ / "other");
  text();
  EXPECT_EQ(saved_, 2);
  EXPECT_EQ(list_steps(folder_ / "other"), Steps{4});
}

TEST_F(checkpoint_steps_rescue, a_run_folder_that_somebody_removed_is_not_made_again) {
  hand_step(7);
  fs::remove(run_);
  EXPECT_NE(text().find("the run folder has gone"), std::string::npos);
  EXPECT_FALSE(fs::exists(run_));
}

TEST_F(checkpoint_steps_rescue, a_full_disk_is_one_sentence_and_older_steps_stay) {
  hand_step(3);
  text();
  handed_.clear();
  hand_step(7);
  for (const char* fault : {"pwrite:ENOSPC", "fsync:EIO", "create:EROFS", "rename:ENOSPC"}) {
    set_file_faults(std::string("only=.tmp-step-00000007,") + fault);
    const std::string said = text();
    set_file_faults("");
    EXPECT_EQ(saved_, 0) << fault;
    EXPECT_NE(said.find("step 7 of " + run_), std::string::npos) << said;
    EXPECT_NE(said.find("could not be saved"), std::string::npos) << said;
    EXPECT_EQ(list_steps(run_), Steps{3}) << fault;
    EXPECT_EQ(hidden(), 0u) << fault;
    EXPECT_EQ(read_file(run_ + "/latest"), "step-00000003\n");
  }
  text();
  EXPECT_EQ(saved_, 1) << "it can be tried again";
}

TEST_F(checkpoint_steps_rescue, another_job_that_saves_there_is_not_disturbed) {
  hand_step(7);
  {
    const auto lock = SaverLock::try_take(run_);
    ASSERT_TRUE(lock.has_value());
    EXPECT_NE(text().find("another saver of this process is saving"), std::string::npos);
    EXPECT_EQ(saved_, 0);
  }
  text();
  EXPECT_EQ(saved_, 1);
}

TEST_F(checkpoint_steps_rescue, bytes_that_changed_after_their_checksum_was_made_are_refused) {
  PretendWorker first = worker(0);
  first.sums = true;
  std::string bytes = first.bytes();
  bytes[first.label().layout().data_at + first.label().offsets()[0] + 5] ^= 1;
  hand(bytes, 0);
  hand(worker(1));
  const std::string said = text();
  EXPECT_EQ(saved_, 0);
  EXPECT_NE(said.find("has changed since its checksums were made"), std::string::npos) << said;
  EXPECT_EQ(list_steps(run_), Steps{});
  EXPECT_EQ(hidden(), 0u);
}

TEST_F(checkpoint_steps_rescue, what_lies_in_files_alone_is_said) {
  PretendWorker first = worker(0);
  first.partial = true;
  hand(first);
  hand(worker(1));
  EXPECT_NE(text().find("has some of its state in files alone"), std::string::npos);
  EXPECT_EQ(list_steps(run_), Steps{});
}

TEST_F(checkpoint_steps_rescue, damaged_and_foreign_memory_is_refused_in_a_sentence) {
  const std::string good = worker(0).bytes();
  const auto refused = [&](const std::string& bytes) {
    handed_.clear();
    hand(bytes, 0);
    hand(worker(1));
    const std::string said = text();
    EXPECT_EQ(saved_, 0) << said;
    return said;
  };
  for (size_t at : {size_t{0}, size_t{9}, size_t{13}, size_t{16}, size_t{100}, size_t{4100},
                    static_cast<size_t>(worker(0).label().layout().note_at) + 9}) {
    std::string bytes = good;
    bytes[at] ^= 0x40;
    EXPECT_NE(refused(bytes).find("a snapshot of rank 0 is ignored"), std::string::npos) << at;
  }
  EXPECT_NE(refused(std::string(100, 'x')).find("less than its head"), std::string::npos);
  EXPECT_NE(refused(std::string(5000, 'x')).find("does not begin as a snapshot"),
            std::string::npos);
  EXPECT_EQ(refused(std::string(5000, '\0')).find("ignored"), std::string::npos);
  handed_.clear();
  hand(good, 3);
  EXPECT_NE(text().find("it says that it is rank 0's"), std::string::npos);
  EXPECT_EQ(list_steps(run_), Steps{});
}

TEST_F(checkpoint_steps_rescue, hostile_plans_are_refused) {
  struct Hostile : PretendWorker {
    std::string with(const std::function<void(SnapshotPlan&, SnapshotNote&)>& change) const {
      std::string memory = bytes();
      const auto parsed =
          parse_snapshot({reinterpret_cast<const uint8_t*>(memory.data()), memory.size()});
      SnapshotPlan plan = parsed->plan;
      SnapshotNote note = parsed->note;
      change(plan, note);
      return snapshot_bytes(plan, note, parsed->layout, memory);
    }
    /// The same memory with other texts, behind everything else.
    static std::string snapshot_bytes(const SnapshotPlan& plan, const SnapshotNote& note,
                                      SnapshotLayout l, std::string memory) {
      const std::string p = encode(plan), n = encode(note);
      l.plan_at = memory.size(), l.plan_bytes = p.size();
      l.plan_sum = Checksum::number_of(p.data(), p.size());
      memory += p;
      l.note_at = memory.size(), l.note_bytes = n.size();
      l.note_sum = Checksum::number_of(n.data(), n.size());
      memory += n;
      l.size = memory.size();
      put_layout(reinterpret_cast<uint8_t*>(memory.data()), l);
      return memory;
    }
  };
  Hostile w;
  static_cast<PretendWorker&>(w) = worker(0);
  const auto said_of = [&](const std::function<void(SnapshotPlan&, SnapshotNote&)>& change) {
    handed_.clear();
    hand(w.with(change), 0);
    hand(worker(1));
    const std::string said = text();
    EXPECT_EQ(saved_, 0) << said;
    EXPECT_EQ(list_steps(run_), Steps{});
    return said;
  };
  constexpr int64_t kHuge = INT64_MAX;
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(contains(said_of([](auto& p, auto&) { p.writes[0][2] = kHuge; }), "it writes"));
  EXPECT_TRUE(contains(said_of([](auto& p, auto&) { p.writes[0][1] = kHuge; }), "it writes"));
  EXPECT_TRUE(contains(said_of([](auto& p, auto&) { p.writes[0][3] = kHuge; }), "it writes"));
  EXPECT_TRUE(contains(said_of([](auto& p, auto&) { p.writes[0][0] = 2; }), "file 2 of 2"));
  EXPECT_TRUE(
      contains(said_of([](auto& p, auto&) { p.writes.push_back(p.writes[0]); }), "overlap"));
  EXPECT_TRUE(contains(said_of([](auto& p, auto&) { p.writes[0][1] += 4; }), "no blocks"));
  EXPECT_TRUE(contains(said_of([](auto& p, auto&) { p.writes.clear(); }), "checksums"));
  EXPECT_TRUE(contains(said_of([](auto& p, auto&) { std::get<0>(p.files[1]) = "../../evil"; }),
                       "knows no file"));
  EXPECT_TRUE(contains(said_of([](auto& p, auto&) { std::get<1>(p.files[0]) = ""; }), "header"));
  EXPECT_TRUE(contains(said_of([](auto& p, auto&) { p.index = "{}"; }), "magic"));
  EXPECT_TRUE(contains(said_of([](auto&, auto& n) { n.run_dir = "run"; }), "absolute"));
  EXPECT_TRUE(contains(said_of([](auto&, auto& n) { n.save = ".tmp-step-00000007-/../x"; }),
                       "temporary folder"));
  EXPECT_TRUE(contains(said_of([](auto&, auto& n) { n.step = -1; }), "step -1"));
  EXPECT_TRUE(contains(said_of([](auto&, auto& n) { n.layout = "\n"; }), "layout"));
  // A world of 2^62 ranks takes no memory: two of them are not all.
  EXPECT_EQ(said_of([](auto&, auto& n) { n.world = int64_t{1} << 62; }).find("saved in"),
            std::string::npos);
}

}  // namespace rescue_test
