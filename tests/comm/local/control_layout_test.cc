// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/paths.h"
#include "trireme/base/file.h"
#include "trireme/comm/local/control.h"

namespace control_layout_test {

using namespace trireme;
using namespace trireme::local;

namespace {

// The control memory outlives its rank, and another build may read it: whatever moves in it needs a
// new version.
std::string layout() {
  std::ostringstream text;
  text << "# Control memory of one rank, version " << kControlVersion << ": name, offset, size\n";
  auto line = [&](const char* name, size_t offset, size_t size) {
    text << name << ' ' << offset << ' ' << size << '\n';
  };
#define FIELD(type, field) line(#type "." #field, offsetof(type, field), sizeof(type::field))
  line("Control", 0, sizeof(Control));
  FIELD(Control, magic);
  FIELD(Control, version);
  FIELD(Control, rank);
  FIELD(Control, size);
  FIELD(Control, pid);
  FIELD(Control, generation);
  FIELD(Control, bytes);
  FIELD(Control, membarrier);
  FIELD(Control, cpus);
  FIELD(Control, state);
  FIELD(Control, last_call);
  FIELD(Control, failure_kind);
  FIELD(Control, failure);
  FIELD(Control, posted);
  FIELD(Control, done);
  FIELD(Control, staged);
  FIELD(Control, reduced);
  FIELD(Control, consumed);
  FIELD(Control, in_data);
  FIELD(Control, sleeping);
  FIELD(Control, bell);
  FIELD(Control, knocks);
  FIELD(Control, probe_address);
  FIELD(Control, channels);
  FIELD(Control, slots);
  FIELD(Control, payload);
  FIELD(Control, board);
  FIELD(Control, ring);
  line("Slot", 0, sizeof(Slot));
  FIELD(Slot, seq);
  FIELD(Slot, digest);
  FIELD(Slot, address);
  FIELD(Slot, window);
  FIELD(Slot, flags);
  FIELD(Slot, inline_data);
  FIELD(Slot, each);
  line("Packet", 0, sizeof(Packet));
  FIELD(Packet, stamp);
  FIELD(Packet, count);
  FIELD(Packet, tag);
  FIELD(Packet, kind);
  FIELD(Packet, dtype);
  FIELD(Packet, site);
  FIELD(Packet, data);
  line("Channel", 0, sizeof(Channel));
  FIELD(Channel, taken);
  FIELD(Channel, released);
  FIELD(Channel, moves);
  line("Move", 0, sizeof(Move));
  FIELD(Move, next);
  FIELD(Move, done);
  line("Board", 0, sizeof(Board));
  FIELD(Board, version);
  FIELD(Board, beat);
  FIELD(Board, waits_for);
  FIELD(Board, text);
  FIELD(Board, found);
  FIELD(Board, found_version);
  FIELD(Board, found_text);
#undef FIELD
  for (int size : {1, 2, 4, 8, 64}) {
    const std::string ranks = " of " + std::to_string(size);
    line(("packets and rings" + ranks).c_str(), channel_offset(0),
         static_cast<size_t>(size) * kPairBytes);
    line(("staging" + ranks).c_str(), staging_offset(size), 2 * segment_bytes(size));
    line(("everything" + ranks).c_str(), 0, control_bytes(size));
  }
  return text.str();
}

}  // namespace

TEST(comm_local_control_layout, is_that_of_its_version) {
  const std::string path = trireme::testing::source_path("/tests/formats/local-control-v") +
                           std::to_string(kControlVersion) + ".txt";
  EXPECT_EQ(layout(), read_file(path))
      << "The control memory has changed: raise kControlVersion and add a fixture beside " << path;
}

TEST(comm_local_control_layout, flags_that_ranks_write_do_not_share_a_line) {
  const size_t lines[] = {
      offsetof(Control, done),     offsetof(Control, staged),  offsetof(Control, reduced),
      offsetof(Control, consumed), offsetof(Control, in_data), offsetof(Control, sleeping),
      offsetof(Control, channels), offsetof(Control, slots),   offsetof(Control, payload)};
  for (size_t i = 0; i < std::size(lines); ++i) {
    EXPECT_EQ(lines[i] % 64, 0u);
    for (size_t j = 0; j < i; ++j) EXPECT_NE(lines[i], lines[j]);
  }
}

}  // namespace control_layout_test
