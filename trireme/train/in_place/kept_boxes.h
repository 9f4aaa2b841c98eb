// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"

// Who has which part of a state, and who sends what to whom when ranks meet in another group. Pure.
namespace trireme {

/// A box of a named tensor, as a rank keeps it.
struct KeptBox {
  std::string name;
  std::vector<int64_t> offsets, lengths;
  int64_t dtype = 0;  // at::ScalarType
  TRIREME_FIELDS(name, offsets, lengths, dtype)
  auto operator<=>(const KeptBox&) const = default;
  int64_t numel() const;
};

/// Elements that each tensor of the whole state has.
using WholeState = std::map<std::string, int64_t>;

/// Whether these boxes together, of one layout, are the whole state: a box may be on several ranks,
/// and different ones do not overlap.
TRIREME_API bool are_whole(const std::vector<std::vector<KeptBox>>& of_ranks,
                           const WholeState& whole);

struct BoxSent {
  KeptBox box;
  int from = 0;
  bool all_have_it = false;  // nothing is sent
  bool operator==(const BoxSent&) const = default;
};
/// Each box once, in one order on all ranks, from the first rank that has it.
TRIREME_API std::vector<BoxSent> boxes_to_send(const std::vector<std::vector<KeptBox>>& of_ranks);

/// What two boxes of one tensor share; empty lengths with `any` false: nothing.
struct SharedBox {
  bool any = false;
  std::vector<int64_t> offsets, lengths;
};
TRIREME_API SharedBox shared_box(const std::vector<int64_t>& offsets_a,
                                 const std::vector<int64_t>& lengths_a,
                                 const std::vector<int64_t>& offsets_b,
                                 const std::vector<int64_t>& lengths_b);

}  // namespace trireme
