// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save/step_save.h"

#include <unistd.h>

#include <filesystem>
#include <random>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/save/step_save_wire.h"
#include "trireme/checkpoint/steps/checksum.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/comm/objects.h"
#include "trireme/tensor/file_view.h"

namespace trireme {
namespace {

using step_save::Begun;
using step_save::Holding;
using step_save::Orders;
using step_save::Seen;
using step_save::WireTensor;

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

/// A name as of a save that is under way (StepDraft), for one that has no folder.
std::string name_in_memory(int64_t step) {
  std::random_device random;
  return fmt::format(".tmp-{}-held-{}-{:08x}", step_folder_name(step), ::getpid(), random());
}

// The first rank's, with its name.
template <class Answer>
RankFailure first_failure(const std::vector<Answer>& answers,
                          const std::vector<std::string>& hosts) {
  for (size_t r = 0; r < answers.size(); ++r)
    if (answers[r].failure)
      return {answers[r].failure.kind,
              fmt::format("rank {} on {}: {}", r, hosts[r], answers[r].failure.text)};
  return {};
}

void check_call(int64_t step, const ShardedSaveOptions& options) {
  check<UsageError>(step >= 0, "save_sharded_step: step {} is negative", step);
  check<UsageError>(options.keep >= 1,
                    "save_sharded_step: keep is {}: at least the new checkpoint must stay",
                    options.keep);
  check<UsageError>(is_layout_text(options.layout),
                    "save_sharded_step: '{}' is not the text of a layout: 1 to 200 printable ASCII "
                    "characters",
                    options.layout);
}

void check_same_call(const std::vector<Holding>& holdings) {
  const Holding& first = holdings[0];
  for (size_t r = 0; r < holdings.size(); ++r) {
    const Holding& h = holdings[r];
    check<UsageError>(h.step == first.step && h.keep == first.keep && h.layout == first.layout,
                      "save_sharded_step: rank 0 saves step {}, keep {}, layout '{}', and rank {} "
                      "step {}, keep {}, layout '{}'",
                      first.step, first.keep, first.layout, r, h.step, h.keep, h.layout);
  }
}

uint64_t digest_of(const std::vector<WireTensor>& tensors) {
  const std::string bytes = encode(tensors);
  return Checksum::number_of(bytes.data(), bytes.size());
}

std::string who_does_not_see(const std::vector<Seen>& seen, const std::vector<std::string>& hosts) {
  for (size_t r = 0; r < seen.size(); ++r)
    if (!seen[r].sees)
      return fmt::format(" (rank {} on {} does not see {}, which rank 0 on {} has just made)", r,
                         hosts[r], seen[r].path, hosts[0]);
  return "";
}

}  // namespace

StepSave::StepSave(std::string run_dir, int64_t step, Group group, ShardedSaveOptions options,
                   std::shared_ptr<SaveMemo> memo)
    : run_dir_(std::move(run_dir)),
      step_(step),
      group_(std::move(group)),
      options_(std::move(options)),
      state_(std::in_place, group_.rank()),
      memo_(std::move(memo)) {}

std::string StepSave::not_saved(const std::string& why) const {
  return fmt::format("checkpoint of step {} was not saved: {}", step_, why);
}

void StepSave::agree(const StateWalk& walk) {
  const bool first = group_.rank() == 0;
  const bool known = std::exchange(memo_->known, false);  // again once all have agreed
  uint64_t digest = 0;
  Holding holding;
  holding.failure = failure_of([&] {
    check_call(step_, options_);
    walk(*state_);
    if (in_memory_)
      for (const at::Tensor& t : state_->tensors)
        check<UsageError>(!t.is_contiguous() || !is_file_view(t),
                          "a snapshot in memory of state that lies in a file, where it is so that "
                          "memory does not have to hold it");
    for (const HeldTensor& t : state_->held.tensors) holding.tensors.push_back(WireTensor::from(t));
    digest = digest_of(holding.tensors);
    holding.as_before = known && digest == memo_->digest;
    if (holding.as_before) holding.tensors.clear();
    holding.take_values(state_->held);
  });
  holding.host = host_name();
  holding.layout = options_.layout, holding.step = step_, holding.keep = options_.keep;
  const std::vector<Holding> holdings = gather_object(group_, holding, 0);

  // Nothing on disk has changed where the ranks' calls do not fit together.
  Begun begun;
  bool as_before = known;
  if (first) {
    for (const Holding& h : holdings) hosts_.push_back(h.host);
    begun.failure = first_failure(holdings, hosts_);
    if (!begun.failure)
      begun.failure = failure_of([&] {
        check_same_call(holdings);
        memo_->held.resize(holdings.size());
        for (size_t r = 0; r < holdings.size(); ++r) {
          check<Corrupt>(known || !holdings[r].as_before,
                         "checkpoint: rank {} sent nothing of what it holds", r);
          as_before = as_before && holdings[r].as_before;
          holdings[r].put_into(memo_->held[r]);
        }
        if (as_before)
          agreed_values(memo_->held);
        else
          plan_save(memo_->held);
        if (in_memory_) {
          begun.temporary = name_in_memory(step_);
        } else {
          draft_.emplace(run_dir_, step_);
          begun.temporary = draft_->name();
        }
      });
    if (begun.failure) begun.failure.text = not_saved(begun.failure.text);
  }
  begun = broadcast_object(group_, begun, 0);
  raise(begun.failure);
  folder_ = run_dir_ + "/" + begun.temporary;

  Seen mine;
  mine.path = folder_;
  const RankFailure unseen =
      failure_of([&] { mine.sees = in_memory_ || path_kind(folder_) == PathKind::folder; });
  if (unseen) mine.path += " (" + unseen.text + ")";
  const std::vector<Seen> seen = gather_object(group_, mine, 0);
  std::vector<Orders> all(first ? seen.size() : 0);
  if (first) {
    RankFailure failure = failure_of([&] {
      std::vector<bool> sees;
      for (const Seen& s : seen) sees.push_back(s.sees);
      // Who writes what is as it was, and will be.
      if (in_memory_ && memo_->sees.size() == sees.size()) sees = memo_->sees;
      check<ResourceError>(sees[0], "{} has gone", folder_);
      as_before = as_before && sees == memo_->sees;
      SavePlan& plan = memo_->plan;
      if (as_before)
        plan.index.values = agreed_values(memo_->held);
      else
        plan = plan_save(memo_->held, sees);
      memo_->sees = sees;
      plan.index.step = step_;
      plan.index.world = group_.size();
      plan.index.layout = options_.layout;
      for (size_t r = 0; r < all.size(); ++r) {
        all[r].as_before = as_before;
        if (!as_before) all[r].take(orders_for(plan, r));
      }
    });
    if (failure) {
      failure.text = not_saved(failure.text + who_does_not_see(seen, hosts_));
      draft_.reset();
      for (Orders& o : all) o.failure = failure;
    }
  }
  const Orders orders = scatter_object(group_, all, 0);
  raise(orders.failure);
  if (!orders.as_before) {
    memo_->orders = orders.orders(*state_);
    ++memo_->plans;
  }
  memo_->digest = digest;
  memo_->known = true;
}

const SnapshotLabel& StepSave::label() {
  SaveMemo& memo = *memo_;
  // What lies in files may become memory, and the other way round, from one save to the next.
  const bool partial = orders().writes.size() < memo.orders.writes.size();
  if (memo.label_of != memo.plans || memo.label_partial || partial) {
    std::string index;
    if (group_.rank() == 0) {
      CheckpointIndex shown = memo.plan.index;
      shown.values.clear();
      index = index_text(shown);
    }
    memo.label = SnapshotLabel(orders(), std::move(index));
    memo.label_of = memo.plans;
    memo.label_partial = partial;
  }
  SnapshotNote note;
  note.save = folder_.substr(folder_.rfind('/') + 1);
  note.run_dir = std::filesystem::absolute(run_dir_).lexically_normal().string();
  note.step = step_, note.rank = group_.rank(), note.world = group_.size();
  note.keep = options_.keep;
  note.partial = partial;
  note.layout = options_.layout;
  note.resumes = options_.resumes_from_memory;
  if (group_.rank() == 0) {
    note.latest = name_in_latest(run_dir_);
    for (const auto& [name, value] : memo.plan.index.values)
      note.values[name] = SnapshotValue::from(value);
  }
  memo.label.set_note(note);
  return memo.label;
}

WrittenFiles StepSave::write(const BytesOfWrite& bytes_of, BytesLast last,
                             const Checksums& checksums) {
  WrittenFiles written;
  written.failure = failure_of([&] {
    try {
      written.checksums = write_step_files(folder_, orders(), bytes_of, last);
      if (checksums) checksums(written.checksums);
      if (!early_) return;
      early_->finish();
      written.checksums = early_->with(written.checksums);
    } catch (const ResourceError& e) {
      uint64_t bytes = 0;
      for (const PlannedWrite& w : memo_->orders.writes) bytes += static_cast<uint64_t>(w.bytes);
      fail<ResourceError>(
          "{}.{}", e.what(),
          space_text(run_dir_, bytes,
                     group_.size() > 1 ? "This rank's part of the checkpoint" : "The checkpoint"));
    }
  });
  return written;
}

RankFailure StepSave::publish(const std::vector<WrittenFiles>& all) {
  RankFailure failure = first_failure(all, hosts_);
  if (!failure)
    failure = failure_of([&] {
      for (size_t r = 0; r < all.size(); ++r) add_checksums(memo_->plan, r, all[r].checksums);
      try {
        write_index(draft_->folder(), memo_->plan.index);
        draft_->publish();
      } catch (const ResourceError& e) {
        uint64_t bytes = index_text(memo_->plan.index).size();
        for (const auto& [name, file] : memo_->plan.index.files) bytes += file.size;
        fail<ResourceError>("{}.{}", e.what(), space_text(run_dir_, bytes));
      }
    });
  if (failure) {
    draft_.reset();  // before the others hear of it
    failure.text =
        not_saved(failure.text + (failure.kind == RankFailure::resource
                                      ? " Earlier checkpoints are as they were; free some space or "
                                        "choose another --run-dir"
                                      : ""));
    return failure;
  }
  failure = failure_of([&] { draft_->settle(options_.keep); });
  if (failure)
    failure.text = fmt::format(
        "checkpoint of step {} is in {}, but its run folder could not be "
        "brought up to date: {}",
        step_, run_dir_, failure.text);
  draft_.reset();
  return failure;
}

}  // namespace trireme
