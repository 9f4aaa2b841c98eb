// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/checkpoint/steps/snapshot/held_saves.h"
#include "trireme/comm/group.h"

namespace trireme {

class HeldStep;

/// The step that workers before these had in memory and their launcher has handed on, if it is the
/// newest of that folder: every rank calls it, and has an object of its own, whose bytes fit the
/// checksums that their ranks left. Null on all ranks: there is none, or the disk has a newer one.
/// Where something is wrong with it rank 0 says so, and nobody writes to the folder any more when
/// this returns.
/// `take`: how this rank gets the memory.
std::shared_ptr<HeldStep> held_step_to_resume(
    const std::function<std::vector<HandedSnapshot>()>& take, const std::string& steps,
    Group world);

}  // namespace trireme
