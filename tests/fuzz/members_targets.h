// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/launch/membership/announcement.h"
#include "trireme/launch/membership/standing.h"

// What launchers of an elastic job say in each other's stores.
namespace trireme::fuzz {

inline void members(std::string_view bytes) {
  const std::string text(bytes);
  const auto read = [&](auto reader) {
    try {
      reader(text);
    } catch (const Corrupt&) {
    }
  };
  read(launch::read_announcement);
  read(launch::read_member);
  read(launch::read_standing);
}

}  // namespace trireme::fuzz
