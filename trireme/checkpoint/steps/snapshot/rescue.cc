// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/rescue.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"
#include "trireme/checkpoint/steps/run_folder/run_folder.h"
#include "trireme/checkpoint/steps/snapshot/held_step.h"

namespace trireme {
namespace {

using RankSnapshots = std::vector<std::unique_ptr<const HeldSnapshot>>;
using SnapshotsByRank = std::map<int64_t, std::unique_ptr<const HeldSnapshot>>;
using SaveKey = std::tuple<std::string, int64_t, std::string>;  // run folder, step, save

/// Of what is left of a save on disk: its temporary folder is renamed to the step, or removed.
bool is_published(const SnapshotNote& note) {
  check<ResourceError>(path_kind(note.run_dir) == PathKind::folder, "the run folder has gone");
  if (path_kind(note.run_dir + "/" + note.save) == PathKind::folder) return false;
  const std::vector<int64_t> steps = list_steps(note.run_dir);
  if (std::find(steps.begin(), steps.end(), note.step) != steps.end()) return true;
  if (steps.empty()) return false;
  try {
    return step_of_folder(find_checkpoint(note.run_dir)) > note.step;
  } catch (const Corrupt&) {  // `latest` names what is not there
    return steps.back() > note.step;
  }
}

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
std::optional<RescueReport> why_not(const SnapshotsByRank& ranks, const std::set<int>& here) {
  const SnapshotNote& note = ranks.begin()->second->note();
  int64_t missing = 0;
  while (ranks.contains(missing)) ++missing;
  if (here.contains(static_cast<int>(missing))) return {};
  return RescueReport{
      false, fmt::format("step {} of {} is in the memory of this host's workers, and not saved: "
                         "rank {} of {} is not one of them",
                         note.step, note.run_dir, missing, note.world)};
}

}  // namespace

std::vector<RescueReport> rescue_snapshots(const std::vector<HandedSnapshot>& handed,
                                           const GenerationFence& fence) {
  std::vector<RescueReport> reports;
  std::map<SaveKey, SnapshotsByRank> saves;
  std::set<int> here;
  for (const HandedSnapshot& memory : handed) {
    here.insert(memory.rank);
    try {
      std::unique_ptr<const HeldSnapshot> held = HeldSnapshot::open(memory.fd.get());
      if (!held) continue;
      const SnapshotNote& note = held->note();
      check<Corrupt>(note.rank == memory.rank, "it says that it is rank {}'s", note.rank);
      auto& ranks = saves[{note.run_dir, note.step, note.save}];
      ranks[note.rank] = std::move(held);
    } catch (const std::exception& e) {
      reports.push_back(
          {false, fmt::format("a snapshot of rank {} is ignored: {}", memory.rank, e.what())});
    }
  }
  // Of each folder the newest that is complete.
  std::set<std::string> done;
  for (auto save_of = saves.rbegin(); save_of != saves.rend(); ++save_of) {
    auto& ranks = save_of->second;
    const SnapshotNote note = ranks.begin()->second->note();
    try {
      if (done.contains(note.run_dir) || is_published(note)) continue;
    } catch (const std::exception& e) {
      reports.push_back({false, fmt::format("step {} of {} is in memory, and not saved: {}",
                                            note.step, note.run_dir, e.what())});
      continue;
    }
    if (static_cast<int64_t>(ranks.size()) < note.world) {
      const auto report = why_not(ranks, here);
      if (!report) continue;
      reports.push_back(*report);
      done.insert(note.run_dir);
      continue;
    }
    RankSnapshots all;
    for (auto& [rank, snapshot] : ranks) all.push_back(std::move(snapshot));
    reports.push_back(save(std::move(all), fence));
    done.insert(note.run_dir);
  }
  return reports;
}

}  // namespace trireme
