// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace trireme::interop {

/// Which file of the folder has each tensor: the "weight_map" of folder/index, as Hugging Face
/// writes it beside weights in several files. Corrupt where it is not one, or names a file that is
/// not in the folder or below it.
std::map<std::string, std::string> read_weight_map(const std::string& folder,
                                                   const std::string& index);

}  // namespace trireme::interop
