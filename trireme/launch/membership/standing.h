// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/export.h"

namespace trireme::launch {

/// What a launcher of an elastic job says of itself, in a table of its own that the others can
/// read. Whoever is to keep the next store writes its name there, by compare and set: so each
/// launcher follows one at a time.
struct Standing {
  enum Kind {
    in,        // the generation, or its workers still end
    free,      // its store is lost, and no worker is left
    promised,  // … and it follows `to`
    left       // it takes part in none any more
  };
  Kind is = free;
  int64_t generation = -1;  // the newest that it has accepted
  std::string of = {};      // … and that generation's keeper, a token
  std::string to = {};      // a token: who is to keep the next store (promised)
  std::string store = {};   // in: the store's address

  bool operator==(const Standing&) const = default;
};

/// JSON with a version. Corrupt: not one of ours.
TRIREME_API std::string to_text(const Standing& standing);
TRIREME_API Standing read_standing(const std::string& text);

}  // namespace trireme::launch
