// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/async_saver.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/clock.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/file.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/base/rank_label.h"
#include "trireme/base/trace.h"
#include "trireme/checkpoint/save/snapshot.h"
#include "trireme/checkpoint/save/step_save.h"
#include "trireme/checkpoint/save/sums_behind.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/snapshot/handover.h"
#include "trireme/comm/objects.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

/// What a rank leaves in the temporary folder when its files are on disk, or could not be written.
std::string fragment_name(int rank) { return fmt::format("written-rank{:05}", rank); }

constexpr size_t kMaxFragment = size_t{1} << 30;

/// Whether an error has ended the group; only calls into it tell.
bool is_over(Group& group) {
  try {
    group.progress();
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

constexpr auto kGrace = 1s;  // for files of ranks that may be gone

/// One save under way: the thread and what it comes to.
class UnderWay {
 public:
  UnderWay(std::unique_ptr<StepSave> save, Snapshot snapshot, const Group& group,
           AsyncSaver::Published published)
      : save_(std::move(save)),
        snapshot_(std::move(snapshot)),
        published_(std::move(published)),
        rank_(group.rank()),
        ranks_(group.size()) {
    thread_ = quiet_thread([this, label = thread_rank()] {
      set_thread_rank(label);
      work_in_background();
      run();
    });
  }
  ~UnderWay() {
    cancel();
    join();
  }
  UnderWay(const UnderWay&) = delete;

  /// This rank's files are written, or have failed.
  RankFailure written() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return mine_done_; });
    return mine_.failure;
  }
  bool written_within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return mine_done_; });
  }
  bool busy() const { return !done_; }
  bool ended() const { return rank_ == 0 ? done_.load() : failed_.load(); }
  /// What is not written yet is not, and rank 0's thread waits for nobody any more.
  void cancel() {
    cancelled_ = true;
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  /// Rank 0: until the step is published or has failed; false: not within that time.
  bool finished_within(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return done_.load(); });
  }
  /// After join(): rank 0's outcome for all.
  const RankFailure& outcome() const { return outcome_; }

 private:
  void run() {
    WrittenFiles written;
    {
      Span span("checkpoint", "write");
      written = save_->write(
          [this](size_t i) {
            check<Error>(!cancelled_, "the save was given up");
            return snapshot_[i];
          },
          BytesLast::to_the_end,
          [this](const std::vector<uint64_t>& checksums) { snapshot_.put_checksums(checksums); });
    }
    if (rank_ > 0) {
      const RankFailure left = failure_of([&] {
        write_file_atomic(save_->folder() + "/" + fragment_name(rank_), encode(written));
      });
      if (!written.failure) written.failure = left;
    }
    {
      std::lock_guard lock(mutex_);
      mine_ = written;
      mine_done_ = true;
      failed_ = bool(written.failure);
      changed_.notify_all();
    }
    if (rank_ == 0) outcome_ = publish(std::move(written));
    std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  RankFailure publish(WrittenFiles own) {
    std::vector<WrittenFiles> all(static_cast<size_t>(ranks_));
    all[0] = std::move(own);
    for (int r = 1; r < ranks_; ++r) {
      const std::string path = save_->folder() + "/" + fragment_name(r);
      WrittenFiles& of_rank = all[static_cast<size_t>(r)];
      bool there = true;
      RankFailure unread = failure_of([&] {
        there = await(path);
        if (!there) return;
        of_rank = decode<WrittenFiles>(read_file(path, kMaxFragment));
        if (file_calls::unlink(path) != 0)
          fail<ResourceError>("cannot remove {}: {}", path, errno_text());
      });
      if (!there) {
        save_->give_up();
        return {RankFailure::other, "the save was given up"};
      }
      if (unread) of_rank.failure = std::move(unread);
    }
    RankFailure failure = save_->publish(all);
    if (!failure && published_) {
      try {
        published_();
      } catch (const std::exception& e) {
        log_warn("after a checkpoint was published: {}", e.what());
      }
    }
    return failure;
  }

  // Until the file is there; false: cancelled. Between looks it waits longer and longer.
  bool await(const std::string& path) {
    auto pause = 1ms;
    while (path_kind(path) != PathKind::file) {
      check<ResourceError>(path_kind(save_->folder()) == PathKind::folder, "{} has gone",
                           save_->folder());
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, pause, [&] { return cancelled_.load(); })) return false;
      pause = std::min(2 * pause, 50ms);
    }
    return true;
  }

  const std::unique_ptr<StepSave> save_;
  const Snapshot snapshot_;
  const AsyncSaver::Published published_;
  const int rank_, ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  WrittenFiles mine_;
  bool mine_done_ = false;
  std::atomic<bool> done_ = false, failed_ = false, cancelled_ = false;
  RankFailure outcome_;
  std::thread thread_;
};

}  // namespace

struct AsyncSaver::Impl {
  std::string run_dir;
  Group group;
  std::array<SnapshotMemory, 2> memory;
  size_t turn = 0;
  std::shared_ptr<SaveMemo> memo = std::make_shared<SaveMemo>();
  std::unique_ptr<UnderWay> under_way;
  int64_t step = 0;                                   // of the save under way
  bool lost = false, failed = false;                  // the last save
  const int exceptions = std::uncaught_exceptions();  // that were on their way already
  size_t writing = 0;                                 // its memory
  SnapshotHandover launcher;
  SumsBehind sums;  // of the last copy that is not written

  Impl(std::string folder, Group ranks)
      : run_dir(std::move(folder)), group(std::move(ranks)), launcher(group.rank()) {}

  /// The launcher holds what this process has, and lets go of what it gives up.
  void reserve(size_t slot, size_t bytes) {
    SnapshotMemory& of_slot = memory[slot];
    const size_t before = of_slot.bytes();
    of_slot.reserve(bytes, [&] { launcher.hold(static_cast<int>(slot), -1); });
    if (of_slot.bytes() != before) launcher.hold(static_cast<int>(slot), of_slot.fd());
  }
  /// So that the next snapshot finds its memory there. What the launcher has of a rank before this
  /// one makes room first.
  void warm(size_t slot, size_t bytes) {
    if (memory[slot].bytes() == 0) launcher.hold(static_cast<int>(slot), -1);
    reserve(slot, bytes);
  }
  /// A rank that cannot make its copy ends the save for all.
  Snapshot copy(StepSave& save, int64_t step, size_t slot) {
    Snapshot snapshot;
    const RankFailure failure = failure_of([&] {
      save.write_file_views();
      const SnapshotLabel& label = save.label();
      sums.end();
      reserve(slot, label.layout().size);
      snapshot = Snapshot::take(save.state(), save.orders(), label, memory[slot]);
      warm(1 - slot, label.layout().size);
    });
    const auto all = all_gather_object(group, failure);
    for (size_t r = 0; r < all.size(); ++r)
      if (all[r]) {
        save.give_up();
        raise({all[r].kind, fmt::format("checkpoint of step {} was not saved: rank {}: {}", step, r,
                                        all[r].text)});
      }
    turn = 1 - slot;
    return snapshot;
  }
  /// Else ranks may start again from what the launcher holds.
  bool ends_well() {
    return !failed && !lost && std::uncaught_exceptions() <= exceptions && !is_over(group);
  }
  /// No step is in memory alone.
  void take_back() {
    sums.end();
    for (size_t slot = 0; slot < memory.size(); ++slot)
      if (memory[slot].bytes() > 0) launcher.hold(static_cast<int>(slot), -1);
  }
};

AsyncSaver::AsyncSaver(std::string run_dir, Group group)
    : impl_(std::make_unique<Impl>(std::move(run_dir), std::move(group))) {}

AsyncSaver::~AsyncSaver() {
  const bool well = impl_->ends_well();
  if (!impl_->under_way) {
    if (well) impl_->take_back();
    return;
  }
  try {
    UnderWay& save = *impl_->under_way;
    const bool leads = impl_->group.rank() == 0;
    const auto ends_within = [&](std::chrono::milliseconds time) {
      return leads ? save.finished_within(time) : save.written_within(time);
    };
    const Deadline deadline = leads ? Deadline::after(impl_->group.timeout()) : Deadline::never();
    while (!ends_within(50ms))
      if (impl_->lost || deadline.expired() || is_over(impl_->group)) {
        if (!ends_within(kGrace)) save.cancel();
        break;
      }
    save.join();
    if (const RankFailure failure = leads ? save.outcome() : save.written())
      log_warn("the checkpoint of step {}: {}", impl_->step, failure.text);
    else if (leads && well)
      impl_->take_back();  // what other ranks have left in memory is nothing without it
  } catch (const std::exception& e) {
    log_warn("the checkpoint of step {}: {}", impl_->step, e.what());
  }
}

void AsyncSaver::save(int64_t step, const StateWalk& walk, const ShardedSaveOptions& options,
                      Published published) {
  wait();
  Span span("checkpoint", "snapshot");
  auto save = std::make_unique<StepSave>(impl_->run_dir, step, impl_->group, options, impl_->memo);
  save->agree(walk);
  const size_t slot = impl_->turn;
  Snapshot snapshot = impl_->copy(*save, step, slot);
  save->forget_state();
  impl_->writing = slot;
  impl_->step = step;
  impl_->under_way = std::make_unique<UnderWay>(std::move(save), std::move(snapshot), impl_->group,
                                                std::move(published));
}

void AsyncSaver::hold(int64_t step, const StateWalk& walk, const ShardedSaveOptions& options) {
  Span span("checkpoint", "snapshot");
  check<UsageError>(impl_->launcher.is_held(),
                    "AsyncSaver::hold: no launcher holds snapshots of this process: start it with "
                    "'trireme run' or 'trireme train'");
  StepSave save(impl_->run_dir, step, impl_->group, options, impl_->memo);
  save.stay_in_memory();
  save.agree(walk);
  // The copy that is being written stays.
  const size_t slot = impl_->under_way ? 1 - impl_->writing : impl_->turn;
  const Snapshot snapshot = impl_->copy(save, step, slot);
  impl_->sums.begin(snapshot, save.orders());
}

std::string AsyncSaver::wait() {
  if (!impl_->under_way) return "";
  const std::unique_ptr<UnderWay> save = std::move(impl_->under_way);
  impl_->failed = true;  // until all know better
  Group& group = impl_->group;
  // An error of the group cancels rank 0's waiting: `save` ends.
  const auto all = gather_object(group, save->written(), 0);
  RankFailure outcome;
  if (group.rank() == 0) {
    // A rank that failed may not have been able to leave word of it beside the files.
    if (std::any_of(all.begin(), all.end(), [](const RankFailure& f) { return bool(f); })) {
      if (!save->finished_within(kGrace)) save->cancel();
    }
    save->join();
    outcome = save->outcome();
    for (size_t r = 0; r < all.size() && outcome.kind == RankFailure::other; ++r)
      if (all[r])
        outcome = {all[r].kind, fmt::format("checkpoint of step {} was not saved: rank {}: {}",
                                            impl_->step, r, all[r].text)};
  }
  raise(broadcast_object(group, outcome, 0));
  impl_->failed = false;
  return impl_->run_dir + "/" + step_folder_name(impl_->step);
}

bool AsyncSaver::is_held() const { return impl_->launcher.is_held(); }

bool AsyncSaver::busy() const { return impl_->under_way && impl_->under_way->busy(); }

bool AsyncSaver::ended() const { return impl_->under_way && impl_->under_way->ended(); }

void AsyncSaver::ranks_are_lost() { impl_->lost = true; }

int64_t AsyncSaver::plans() const { return impl_->memo->plans; }

int64_t AsyncSaver::memory_bytes() const {
  return static_cast<int64_t>(impl_->memory[0].bytes() + impl_->memory[1].bytes());
}

}  // namespace trireme
