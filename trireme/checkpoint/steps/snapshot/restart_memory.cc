// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/restart_memory.h"

#include <algorithm>
#include <utility>

#include "trireme/base/events/progress_marks.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"
#include "trireme/checkpoint/steps/snapshot/rescue.h"

namespace trireme {
namespace {

void say(const std::vector<RescueReport>& reports) {
  for (const RescueReport& report : reports)
    report.saved ? log_info("{}", report.text) : log_warn("{}", report.text);
}

void say(const std::vector<std::string>& faults) {
  for (const std::string& fault : faults) log_warn("{}", fault);
}

/// The program takes it from memory, where all of it is.
bool resumes(const HeldSave& save) {
  return std::all_of(save.ranks.begin(), save.ranks.end(), [](const auto& rank) {
    const SnapshotNote& note = rank.second.snapshot->note();
    return note.resumes && !note.partial;
  });
}

}  // namespace

RestartMemory::~RestartMemory() { write(); }

void RestartMemory::finish() {
  if (writer_.joinable()) writer_.join();
}

void RestartMemory::take(std::vector<HandedSnapshot> handed, const GenerationFence& fence) {
  finish();
  bool sealed = true;
  for (const HandedSnapshot& memory : handed) sealed = seal_snapshot(memory.fd.get()) && sealed;
  HeldSaves found = held_saves(handed);
  std::vector<int> newest;
  const HeldSave* save = nullptr;
  for (const HeldSave& candidate : found.saves)
    if (candidate.is_whole() && (!save || candidate.note().step > save->note().step))
      save = &candidate;
  // They died before they had a whole step: the one before is still the newest.
  if (!save && !newest_.empty()) return say(found.faults);
  if (save && resumes(*save)) {
    if (sealed)
      for (const auto& [rank, part] : save->ranks) newest.push_back(handed[part.handed].fd.get());
    else
      log_warn(
          "step {} of {} is in the memory of workers that ended, and a process that is left of "
          "them can still write to it: the restart goes on from the disk",
          save->note().step, save->note().run_dir);
  }
  // Of one run nothing but that step is needed any more.
  const bool alone =
      !newest.empty() &&
      std::all_of(found.saves.begin(), found.saves.end(), [&](const HeldSave& other) {
        return other.note().run_dir == save->note().run_dir;
      });
  if (alone) {
    say(found.faults);
    std::erase_if(handed, [&](const HandedSnapshot& memory) {
      return std::find(newest.begin(), newest.end(), memory.fd.get()) == newest.end();
    });
  }
  world_ = newest.size();
  newest_ = std::move(newest);
  handed_ = std::move(handed);
  fence_ = fence;
  written_ = handed_.empty();
  if (!fence_.path.empty()) write();
}

void RestartMemory::write() {
  finish();
  if (!std::exchange(written_, true)) say(rescue_snapshots(handed_, fence_));
}

std::string RestartMemory::hand_on() { return trireme::hand_on(offer()); }

std::vector<const HandedSnapshot*> RestartMemory::offer() {
  if (newest_.empty()) {
    write();
    handed_.clear();
    return {};
  }
  if (writing_) return the_newest();
  finish();
  if (!std::exchange(written_, true)) {
    writing_ = true;
    writer_ = quiet_thread([this] {
      work_in_background();
      say(rescue_snapshots(handed_, fence_));
      writing_ = false;
    });
  }
  return the_newest();
}

std::vector<const HandedSnapshot*> RestartMemory::the_newest() const {
  std::vector<const HandedSnapshot*> handed;
  for (const HandedSnapshot& memory : handed_)
    if (std::find(newest_.begin(), newest_.end(), memory.fd.get()) != newest_.end())
      handed.push_back(&memory);
  return handed;
}

void RestartMemory::ranks_have_snapshots(size_t ranks) {
  if (ranks >= world_) nothing_older_is_needed();
}

void RestartMemory::nothing_older_is_needed() {
  if (handed_.empty() || writing_) return;
  finish();
  newest_.clear();
  handed_.clear();
}

}  // namespace trireme
