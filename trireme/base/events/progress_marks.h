// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/base/export.h"

// What a worker of `trireme run` shows its launcher of how far it is, so that one that hangs is
// told from one that is slow.
namespace trireme {

/// What a rank is at. The numbers are in the memory that the launcher reads: new ones come at the
/// end.
enum class Activity : uint8_t {
  none = 0,
  build = 1,     // makes its model, meets the others
  load = 2,      // reads a checkpoint, weights, data
  step = 3,      // computes a step
  evaluate = 4,  // on held-out data
  save = 5,      // a checkpoint
  done = 6,      // from here on the launcher does not watch it
};
constexpr int kActivities = 7;
TRIREME_API const char* name_of(Activity at) noexcept;

/// This rank begins `at`, in step number `step` (0: none). From the first mark of a process to
/// Activity::done its launcher watches it: a rank that makes no mark for longer than
/// --hang-timeout allows (docs/running.md, "Ranks that hang") is ended, with all others. So a loop
/// of your own marks every step as it begins, and what it does between steps:
///
///   for (int64_t step = 1; step <= steps; ++step) {
///     trireme::mark_progress(trireme::Activity::step, step);
///     …
///   }
///   trireme::mark_progress(trireme::Activity::done);
///
/// `trireme train` and train() mark by themselves, and so does Engine::step() of a process that has
/// marked before. Costs some tens of nanoseconds: no lock, no system call; nothing without a
/// launcher, and nothing in a forked child. Threads: any. Never throws.
TRIREME_API void mark_progress(Activity at, int64_t step = 0) noexcept;

/// The work that the last mark of this thread named goes on: one more file, or batch, of many. Of
/// threads that have made none it counts in a save and while something is loaded. File calls of
/// checkpoints (base/file) say it by themselves.
TRIREME_API void mark_alive() noexcept;

/// This thread works beside the one that steps (a saver, a loader): what it waits for says nothing
/// of the rank. For the rest of its life.
TRIREME_API void work_in_background() noexcept;

/// Whether this process has marked, and is watched.
TRIREME_API bool marks_progress() noexcept;

/// In a process that has marked: at something else while it lives, then at what was before.
class TRIREME_API ActivityScope {
 public:
  explicit ActivityScope(Activity at, int64_t step = 0) noexcept;
  ~ActivityScope();
  ActivityScope(const ActivityScope&) = delete;

 private:
  Activity before_ = Activity::none;  // none: nothing was marked
  int64_t step_before_ = 0;
};

/// While it lives, the launcher sees that this thread waits for other ranks, in the call of this
/// text: it is not the one that hangs. Nothing in a process that has made no mark.
class TRIREME_API WaitMark {
 public:
  WaitMark() = default;
  ~WaitMark() { end(); }
  WaitMark(const WaitMark&) = delete;

  /// May be said again, when the wait is another one.
  void begin(std::string_view text) noexcept;
  void end() noexcept;

 private:
  bool said_ = false;
};

}  // namespace trireme
