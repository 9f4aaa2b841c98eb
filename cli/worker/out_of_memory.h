// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

namespace trireme {

/// What an error says, for people: brief(), and of memory that could not be had one sentence with
/// the rank, what it asked for, the limit it is under, and what to do.
std::string message_of(const std::exception& error);

}  // namespace trireme
