// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace trireme::interop {

/// Whether a file is called BASE-00001-of-00003.EXTENSION.
bool is_shard_name(const std::string& name);

/// Such names say how many files there are: the first that is not among `names`; "" where all are
/// there.
std::string first_missing_shard(const std::vector<std::string>& names);

}  // namespace trireme::interop
