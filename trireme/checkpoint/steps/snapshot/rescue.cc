// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/rescue.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"
#include "trireme/checkpoint/steps/snapshot/held_step.h"

namespace trireme {
namespace {

using RankSnapshots = std::vector<std::unique_ptr<const HeldSnapshot>>;

RescueReport save(RankSnapshots ranks, const GenerationFence& fence) {
  const SnapshotNote note = ranks[0]->note();
  const std::string step = fmt::format("step {} of {}", note.step, note.run_dir);
  const std::string folder = note.run_dir + "/" + step_folder_name(note.step);
  uint64_t bytes = 0;
  bool published = false;
  try {
    HeldStep held(std::move(ranks));
    bytes = held.bytes();
    StepDraft draft(note.run_dir, note.step, StepDraft::kPatience, fence);
    held.write(draft.folder());
    draft.publish();
    published = true;
    draft.settle(static_cast<int>(std::min<int64_t>(note.keep, INT32_MAX)));
    return {true, fmt::format("{} was only in the memory of the workers that ended; it is saved in "
                              "{}",
                              step, folder)};
  } catch (const ResourceError& e) {
    if (published)
      return {false, fmt::format("{} was only in the memory of the workers that ended; it is in {} "
                                 "now, but `latest` may name the one before: {}",
                                 step, folder, e.what())};
    return {false, fmt::format("{} was in the memory of the workers that ended, and could not be "
                               "saved: {}.{} Earlier checkpoints are as they were",
                               step, e.what(), space_text(note.run_dir, bytes))};
  } catch (const std::exception& e) {
    return {false,
            fmt::format("{} was in the memory of the workers that ended, and is not saved: {}. "
                        "Earlier checkpoints are as they were",
                        step, e.what())};
  }
}

/// Why a save of which some ranks have left nothing complete is not written; nothing where such a
/// rank is one of ours, which had not copied its part.
std::optional<RescueReport> why_not(const HeldSave& save, const std::set<int>& here) {
  const SnapshotNote& note = save.note();
  const int64_t missing = save.missing();
  if (here.contains(static_cast<int>(missing))) return {};
  return RescueReport{
      false, fmt::format("step {} of {} is in the memory of this host's workers, and not saved: "
                         "rank {} of {} is not one of them",
                         note.step, note.run_dir, missing, note.world)};
}

}  // namespace

std::vector<RescueReport> rescue_snapshots(const std::vector<HandedSnapshot>& handed,
                                           const GenerationFence& fence) {
  HeldSaves held = held_saves(handed);
  std::vector<RescueReport> reports;
  for (std::string& fault : held.faults) reports.push_back({false, std::move(fault)});
  // Of each folder the newest that is complete.
  std::set<std::string> done;
  for (HeldSave& of_step : held.saves) {
    const SnapshotNote note = of_step.note();
    try {
      if (done.contains(note.run_dir) || is_published(note)) continue;
    } catch (const std::exception& e) {
      reports.push_back({false, fmt::format("step {} of {} is in memory, and not saved: {}",
                                            note.step, note.run_dir, e.what())});
      continue;
    }
    if (!of_step.is_whole()) {
      const auto report = why_not(of_step, held.ranks);
      if (!report) continue;
      reports.push_back(*report);
      done.insert(note.run_dir);
      continue;
    }
    reports.push_back(save(of_step.take_snapshots(), fence));
    done.insert(note.run_dir);
  }
  return reports;
}

}  // namespace trireme
