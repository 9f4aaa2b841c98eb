// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/handed_on.h"

#include <fcntl.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "trireme/base/check.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

std::string same_for_all(const std::string& run_dir) {
  return std::filesystem::absolute(run_dir).lexically_normal().string();
}

int number_at(const char*& at, const char* end, char stop) {
  int number = -1;
  const auto [after, error] = std::from_chars(at, end, number);
  const bool stops = after == end || *after == stop;
  check<Corrupt>(error == std::errc() && number >= 0 && stops,
                 "{} holds no list of descriptors and ranks", kHeldSnapshotsVariable);
  at = after == end ? end : after + 1;
  return number;
}

}  // namespace

bool seal_snapshot(int fd) { return ::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0; }

bool is_sealed_snapshot(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_WRITE);
}

std::string hand_on(const std::vector<const HandedSnapshot*>& snapshots) {
  std::string text;
  for (const HandedSnapshot* snapshot : snapshots) {
    ::fcntl(snapshot->fd.get(), F_SETFD, 0);
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", snapshot->fd.get(), snapshot->rank);
  }
  return text;
}

std::vector<HandedSnapshot> take_handed_on() {
  const char* given = std::getenv(kHeldSnapshotsVariable);
  if (!given || !*given) return {};
  const std::string text = given;
  ::unsetenv(kHeldSnapshotsVariable);
  std::vector<HandedSnapshot> snapshots;
  std::set<int> seen;
  const char* at = text.data();
  for (const char* const end = at + text.size(); at != end;) {
    const int fd = number_at(at, end, ':'), rank = number_at(at, end, ',');
    check<Corrupt>(fd > 2 && seen.insert(fd).second, "{} names descriptor {}",
                   kHeldSnapshotsVariable, fd);
    // Anything else is not ours to close.
    check<Corrupt>(is_sealed_snapshot(fd),
                   "descriptor {} of {} is no memory that is sealed against writing", fd,
                   kHeldSnapshotsVariable);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    snapshots.push_back({UniqueFd(fd), rank});
  }
  return snapshots;
}

void forget_handed_on() {
  try {
    take_handed_on();
  } catch (const Corrupt& gone) {
    log_debug("{}", gone.what());
  }
}

std::shared_ptr<HeldStep> held_step_of(const std::vector<HandedSnapshot>& snapshots,
                                       const std::string& run_dir) {
  HeldSaves held = held_saves(snapshots);
  check<Corrupt>(held.faults.empty(), "{}", held.faults.empty() ? "" : held.faults.front());
  const std::string folder = same_for_all(run_dir);
  for (HeldSave& save : held.saves)
    if (save.note().run_dir == folder && save.is_whole())
      return std::make_shared<HeldStep>(save.take_snapshots());
  return nullptr;
}

}  // namespace trireme
