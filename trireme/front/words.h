// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

// Small readers of a command line.
namespace trireme {

/// argv[1…] as strings.
std::vector<std::string> words_of(int argc, char** argv);

/// ": did you mean --steps?", or "" where none of the known words is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace trireme
