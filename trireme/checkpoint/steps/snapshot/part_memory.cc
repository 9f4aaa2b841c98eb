// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/part_memory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/events/progress_marks.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/checkpoint/steps/snapshot/handed_on.h"
#include "trireme/checkpoint/steps/snapshot/rescue.h"

namespace trireme {
namespace {

void say_rescued(const std::vector<HandedSnapshot>& handed, const GenerationFence& fence) {
  for (const RescueReport& report : rescue_snapshots(handed, fence))
    report.saved ? log_info("{}", report.text) : log_warn("{}", report.text);
}

uint64_t size_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

bool is_behind(const SnapshotNote& note) {
  try {
    return note.rank == 0 && is_behind_the_disk(note);
  } catch (const ResourceError&) {  // its rank 0 looks again, and says so
    return false;
  }
}

}  // namespace

PartMemory::~PartMemory() {
  if (writer_.joinable()) writer_.join();
  std::vector<HandedSnapshot> all;
  for (Part& part : parts_) {
    // Of other steps there is more to say only where this host had all ranks.
    const auto here = std::count_if(parts_.begin(), parts_.end(), [&](const Part& other) {
      return other.note.save == part.note.save && other.note.run_dir == part.note.run_dir;
    });
    if (here == part.note.world) all.push_back(std::move(part.memory));
  }
  if (!all.empty()) say_rescued(all, fence_);
}

bool PartMemory::has(const SnapshotNote& note) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    return part.note.save == note.save && part.note.rank == note.rank;
  });
}

void PartMemory::add(std::vector<HandedSnapshot> handed, std::vector<HandedSnapshot>* rest) {
  std::vector<bool> sealed;
  for (const HandedSnapshot& memory : handed) sealed.push_back(seal_snapshot(memory.fd.get()));
  const HeldSaves found = held_saves(handed);
  for (const std::string& fault : found.faults) log_warn("{}", fault);
  for (const HeldSave& save : found.saves)
    for (const auto& [rank, part] : save.ranks) {
      SnapshotNote note = part.snapshot->note();
      note.values.clear();
      HandedSnapshot& memory = handed[part.handed];
      if (!note.resumes || note.partial) {
        if (rest) rest->push_back(std::move(memory));
      } else if (!sealed[part.handed]) {
        log_warn(
            "what rank {} had of step {} is not taken: a process that is left of the workers can "
            "still write to it",
            rank, note.step);
      } else if (!has(note)) {
        const uint64_t bytes = size_of(memory.fd.get());
        parts_.push_back({std::move(note), bytes, std::move(memory)});
      }
    }
}

void PartMemory::take(std::vector<HandedSnapshot> handed, const GenerationFence& fence) {
  if (writer_.joinable()) writer_.join();
  fetched_.clear();
  fence_ = fence;
  std::vector<HandedSnapshot> rest;
  add(std::move(handed), &rest);
  if (!rest.empty()) say_rescued(rest, fence);
}

void PartMemory::take_copies(std::vector<HandedSnapshot> copies) {
  add(std::move(copies), nullptr);
}

void PartMemory::see(const SnapshotHolder& holder) {
  fetched_.clear();  // the workers have inherited them
  if (!parts_.empty() && holder.has_a_second()) parts_.clear();
}

HostParts PartMemory::report() const {
  HostParts report;
  report.attempt = attempt_;
  for (const Part& part : parts_)
    report.parts.push_back({part.note.run_dir, part.note.save, part.note.step, part.note.rank,
                            part.note.world, part.bytes, is_behind(part.note)});
  return report;
}

int PartMemory::part(const std::string& save, int64_t rank) const {
  for (const Part& part : parts_)
    if (part.note.save == save && part.note.rank == rank) return part.memory.fd.get();
  return -1;
}

std::string PartMemory::hand_on(const SpreadStep& step, std::vector<HandedSnapshot> fetched,
                                int attempt) {
  std::erase_if(parts_, [&](const Part& part) { return part.note.save != step.save; });
  fetched_ = std::move(fetched);
  attempt_ = attempt;
  std::vector<const HandedSnapshot*> all;
  for (const Part& part : parts_) all.push_back(&part.memory);
  for (const HandedSnapshot& memory : fetched_) all.push_back(&memory);
  return trireme::hand_on(all);
}

void PartMemory::hand_on_nothing(int attempt) {
  parts_.clear();
  fetched_.clear();
  attempt_ = attempt;
}

void PartMemory::write_behind(const GenerationFence& fence) {
  if (writer_.joinable()) writer_.join();
  std::vector<HandedSnapshot> copies;
  const auto add = [&](const HandedSnapshot& memory) {
    copies.push_back({UniqueFd(::fcntl(memory.fd.get(), F_DUPFD_CLOEXEC, 3)), memory.rank});
  };
  for (const Part& part : parts_) add(part.memory);
  for (const HandedSnapshot& memory : fetched_) add(memory);
  writer_ = quiet_thread([copies = std::move(copies), fence] {
    work_in_background();
    say_rescued(copies, fence);
  });
}

}  // namespace trireme
