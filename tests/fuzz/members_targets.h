// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/launch/membership/announcement.h"
#include "trireme/launch/membership/places.h"
#include "trireme/launch/membership/standing.h"

// What launchers of an elastic job say in each other's stores.
namespace trireme::fuzz {

/// Who trains together on several hosts, as their launchers write it.
inline void places(std::string_view bytes, int count) {
  try {
    launch::Places all = launch::Places::read(bytes, count);
    if (all.text() != bytes) throw std::logic_error("it is written otherwise than it is read");
    all.lost(count - 1);
    all.next();
    all.ready(count - 1);
    const auto next = all.next();
    if (!next || launch::Places::read(all.text(), count).text() != all.text())
      throw std::logic_error("a worker that is ready is not taken in");
  } catch (const Corrupt&) {
  } catch (const Mismatch&) {
  }
}

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
  for (const int count : {1, 3}) places(bytes, count);
}

}  // namespace trireme::fuzz
