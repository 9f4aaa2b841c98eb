// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme {

/// `trireme config check|show …`. argv[0] is the verb's name; returns the exit code (0 done, 2 when
/// the configuration or the command line is wrong, 1 when a file cannot be written).
int config_main(int argc, char** argv);

}  // namespace trireme
