// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

// Where ranks write down their last calls when a group fails. What a user has set counts, also
// where it is empty (nowhere); a launcher has a variable of its own, so that a launcher among the
// workers of another tells the user's choice from the folder of that one's job.
namespace trireme {

inline constexpr const char* kFlightVariable = "TRIREME_FLIGHT_DIR";         // the user's
inline constexpr const char* kJobFlightVariable = "TRIREME_JOB_FLIGHT_DIR";  // a launcher's

/// `env`: the value of a variable, std::optional<std::string>. "": nowhere.
template <class Getenv>
std::string flight_folder_in(const Getenv& env) {
  std::optional<std::string> folder = env(kFlightVariable);
  if (!folder) folder = env(kJobFlightVariable);
  return folder.value_or("");
}

}  // namespace trireme
