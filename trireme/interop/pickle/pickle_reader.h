// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/base/export.h"
#include "trireme/interop/tree.h"

namespace trireme::interop {

/// Reads a pickle of protocol 2 to 5 as data, without Python and without running anything: only the
/// names of pickle_names.h may stand for a class or a function, and each of those only describes a
/// value. UsageError, by name, for every other ("refuses os.system"), and for an opcode that
/// torch's files do not use; Corrupt for bytes that are no such pickle, for values nested more than
/// 100 deep or in themselves, and for more than 4,000,000 of them. `where` begins every message.
TRIREME_API Tree read_pickle(std::span<const uint8_t> bytes, const std::string& where);

}  // namespace trireme::interop
