// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/rendezvous/facts/facts.h"

namespace trireme {

/// What a process finds of its host: this library and its wire formats, limits, memory, shared
/// memory. `folder`: where the run saves, with the disk behind it; "": nowhere. `root` is put
/// before /proc, /sys and /dev, for tests.
TRIREME_API std::vector<Fact> read_facts(const std::string& folder, const std::string& root = "");

/// Of a file that is to be the same on all hosts: its length and what its bytes come to (beyond 64
/// MiB, its beginning's).
TRIREME_API Fact file_fact(const std::string& name, const std::string& path);

}  // namespace trireme
