// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/snapshot/held_saves.h"
#include "trireme/checkpoint/steps/snapshot/held_step.h"

// How a step that a launcher holds comes to the workers that it starts again: they inherit the
// descriptors of its snapshots, whose numbers are in TRIREME_HELD_SNAPSHOTS ("12:0,15:1": memory 12
// is rank 0's). The memory is sealed: nobody can write to it any more, its maker neither.
namespace trireme {

inline constexpr const char* kHeldSnapshotsVariable = "TRIREME_HELD_SNAPSHOTS";

/// Seals memory of processes that are dead against writing. False: somebody can write to it still.
TRIREME_API bool seal_snapshot(int fd);
TRIREME_API bool is_sealed_snapshot(int fd);

/// For the environment; these descriptors are inherited from now on.
TRIREME_API std::string hand_on(const std::vector<const HandedSnapshot*>& snapshots);

/// A rank's end: the descriptors of this process, which are its own from then on. The variable is
/// gone, so that programs that it starts look for none. Empty: nothing was handed on. Corrupt,
/// saying what is wrong: a text that is not hand_on()'s, memory that is not sealed.
TRIREME_API std::vector<HandedSnapshot> take_handed_on();

/// In a process that takes no step from there, as a launcher among the workers of another: the
/// memory goes, and what it starts finds none.
TRIREME_API void forget_handed_on();

/// The newest step of that run folder that is whole in these memories; null: there is none.
/// Corrupt: one of them is damaged, or they do not fit together.
TRIREME_API std::shared_ptr<HeldStep> held_step_of(const std::vector<HandedSnapshot>& snapshots,
                                                   const std::string& run_dir);

}  // namespace trireme
