// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/backend.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// A world of any size in one process, of which this is one rank; the others are not there. Takes
/// every dtype, device (meta as well) and reduction, no store, no time: a call is complete when it
/// returns. What would come from peers comes from this rank:
///   all_reduce, reduce, broadcast, send, recv, barrier   move nothing: the tensor stays as it is
///   all_gather, gather (on the root)                     every part is this rank's input
///   reduce_scatter, scatter (on the root)                the output is this rank's part of the
///                                                        input; elsewhere scatter moves nothing
///   all_to_all                                           the part from r begins with what this
///                                                        rank gives to r; what is left is zero
/// (as torch's FakeProcessGroup). So in Group::split all ranks seem to give this rank's color: the
/// group is a copy of the whole; new_group and DeviceMesh know who is in a group and make the right
/// ones. After abort() calls throw Aborted with its text. source() of a recv from anybody: the
/// lowest other rank.
std::shared_ptr<Backend> fake_backend(const BackendSpec& spec);

}  // namespace trireme::detail
