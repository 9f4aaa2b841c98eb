// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/held_saves.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/file/folder.h"
#include "trireme/checkpoint/steps/run_folder/folders.h"

namespace trireme {
namespace {

using SaveKey = std::tuple<std::string, int64_t, std::string>;  // run folder, step, save

/// What `latest` names, if it is there; else the newest.
int64_t newest_step(const std::string& run_dir, const std::vector<int64_t>& steps) {
  try {
    return step_of_folder(find_checkpoint(run_dir));
  } catch (const Corrupt&) {  // `latest` names what is not there
    return steps.back();
  }
}

}  // namespace

int64_t HeldSave::missing() const {
  int64_t rank = 0;
  while (ranks.contains(rank)) ++rank;
  return rank;
}

std::vector<std::unique_ptr<const HeldSnapshot>> HeldSave::take_snapshots() {
  std::vector<std::unique_ptr<const HeldSnapshot>> all;
  for (auto& [rank, part] : ranks) all.push_back(std::move(part.snapshot));
  ranks.clear();
  return all;
}

HeldSaves held_saves(const std::vector<HandedSnapshot>& handed) {
  HeldSaves held;
  std::map<SaveKey, HeldSave> saves;
  for (size_t i = 0; i < handed.size(); ++i) {
    held.ranks.insert(handed[i].rank);
    try {
      std::unique_ptr<const HeldSnapshot> snapshot = HeldSnapshot::open(handed[i].fd.get());
      if (!snapshot) continue;
      const SnapshotNote& note = snapshot->note();
      check<Corrupt>(note.rank == handed[i].rank, "it says that it is rank {}'s", note.rank);
      HeldSave& save = saves[{note.run_dir, note.step, note.save}];
      save.ranks[note.rank] = {std::move(snapshot), i};
    } catch (const std::exception& e) {
      held.faults.push_back(
          fmt::format("a snapshot of rank {} is ignored: {}", handed[i].rank, e.what()));
    }
  }
  for (auto save = saves.rbegin(); save != saves.rend(); ++save)
    held.saves.push_back(std::move(save->second));
  return held;
}

bool is_published(const SnapshotNote& note) {
  check<ResourceError>(path_kind(note.run_dir) == PathKind::folder, "the run folder has gone");
  if (path_kind(note.run_dir + "/" + note.save) == PathKind::folder) return false;
  const std::vector<int64_t> steps = list_steps(note.run_dir);
  // Nothing was published since: a step of this number is of a run that this one has branched off,
  // or could not be named by `latest` any more.
  if (note.latest && *note.latest == name_in_latest(note.run_dir)) return false;
  if (std::find(steps.begin(), steps.end(), note.step) != steps.end()) return true;
  return !steps.empty() && newest_step(note.run_dir, steps) > note.step;
}

bool is_behind_the_disk(const SnapshotNote& note) {
  check<ResourceError>(path_kind(note.run_dir) == PathKind::folder, "the run folder has gone");
  const std::vector<int64_t> steps = list_steps(note.run_dir);
  if (steps.empty() || (note.latest && *note.latest == name_in_latest(note.run_dir))) return false;
  return newest_step(note.run_dir, steps) > note.step;
}

}  // namespace trireme
