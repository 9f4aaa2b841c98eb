// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

// What is offloaded together, where it lies, and in which order it passes through the buffers.
// Integers in, values out.
namespace trireme {

/// Neighbouring parameters whose state moves as one. A parameter is never split, so one that is
/// larger than the limit is a sub-group by itself.
struct SubGroup {
  size_t first = 0, count = 0;
  int64_t bytes = 0;
};

inline std::vector<SubGroup> plan_sub_groups(const std::vector<int64_t>& state_bytes,
                                             int64_t limit) {
  std::vector<SubGroup> groups;
  for (size_t i = 0; i < state_bytes.size(); ++i) {
    if (groups.empty() || groups.back().bytes > limit - state_bytes[i]) groups.push_back({i, 0, 0});
    ++groups.back().count;
    groups.back().bytes += state_bytes[i];
  }
  return groups;
}

inline int64_t round_up(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Offsets of blocks laid one behind the other, each at a multiple of `alignment`; the last value
/// is the end.
inline std::vector<int64_t> plan_offsets(const std::vector<int64_t>& bytes, int64_t alignment) {
  std::vector<int64_t> offsets{0};
  for (int64_t b : bytes) offsets.push_back(round_up(offsets.back() + b, alignment));
  return offsets;
}

/// One pass of all sub-groups through the buffers.
struct OffloadTurn {
  enum Action { read, wait_read, use, write, wait_write } action;
  int group;
  int buffer;
};

/// Sub-group g uses buffer g % buffers. With three or more buffers a read of what comes next and a
/// write of what has been are under way while one is used; with two, only one of both at a time.
inline std::vector<OffloadTurn> plan_turns(int groups, int buffers, bool pipeline_read,
                                           bool pipeline_write) {
  const int others = buffers - 1;
  const int ahead =
      pipeline_read ? std::min(others, std::max(1, pipeline_write ? others - 1 : others)) : 0;
  std::vector<OffloadTurn> turns;
  int read = 0, written = 0;  // the next sub-group to read; to wait for
  auto add = [&](OffloadTurn::Action action, int g) { turns.push_back({action, g, g % buffers}); };
  auto read_up_to = [&](int last) {
    for (; read <= std::min(last, groups - 1); ++read) {
      for (; written <= read - buffers; ++written) add(OffloadTurn::wait_write, written);
      add(OffloadTurn::read, read);
    }
  };
  for (int g = 0; g < groups; ++g) {
    read_up_to(g);
    add(OffloadTurn::wait_read, g);
    read_up_to(g + ahead);
    add(OffloadTurn::use, g);
    add(OffloadTurn::write, g);
    for (; !pipeline_write && written <= g; ++written) add(OffloadTurn::wait_write, written);
  }
  for (; written < groups; ++written) add(OffloadTurn::wait_write, written);
  return turns;
}

}  // namespace trireme
