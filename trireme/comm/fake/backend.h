// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "trireme/comm/backend.h"
#include "trireme/comm/registry.h"

namespace trireme::detail {

/// A world of any size in one process, of which this is one rank; the others do not exist. It takes
/// every dtype, device (including meta) and reduction, and needs no store. A call is complete when
/// it returns. Data that would come from peers comes from this rank:
///   all_reduce, reduce, broadcast, send, recv, barrier   move nothing: the tensor is unchanged
///   all_gather, gather (on the root)                     every part is this rank's input
///   reduce_scatter, scatter (on the root)                the output is this rank's part of the
///                                                        input; elsewhere scatter moves nothing
///   all_to_all                                           the part from r begins with what this
///                                                        rank gives to r; the remainder is zero
/// (as in torch's FakeProcessGroup). In Group::split all ranks therefore seem to pass this rank's
/// color, and the result is a copy of the whole group; new_group and DeviceMesh make the right
/// groups. After abort() calls throw Aborted with its text. source() of a recv from any rank is the
/// lowest other rank.
std::shared_ptr<Backend> fake_backend(const BackendSpec& spec);

}  // namespace trireme::detail
