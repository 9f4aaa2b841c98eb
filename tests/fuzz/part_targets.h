// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/steps/snapshot/spread_step.h"
#include "trireme/launch/nodes/part_messages.h"

// What launchers of several hosts say of steps in memory.
namespace trireme::fuzz {

/// The bytes of a T are written as they are read. False: they are none.
template <class T>
bool is_read(std::string_view bytes, T* value) {
  try {
    *value = decode<T>(bytes);
  } catch (const Corrupt&) {
    return false;
  } catch (const Mismatch&) {
    return false;
  }
  if (encode(*value) != bytes) throw std::logic_error("it is written otherwise than it is read");
  return true;
}

/// Whatever hosts report, the step that is chosen holds together and fits.
inline void choose(const std::vector<HostParts>& hosts) {
  const SpreadChoice choice = choose_spread_step(hosts);
  if (!choice.step) return;
  const auto require = [](bool ok, const char* what) {
    if (!ok) throw std::logic_error(what);
  };
  for (size_t h = 0; h < hosts.size(); ++h) {
    uint64_t left = hosts[h].room / 2;
    for (size_t r = 0; r < choice.step->ranks.size(); ++r) {
      const SpreadStep::Rank& rank = choice.step->ranks[r];
      const std::vector<size_t> sources = sources_of(rank, h);
      require(!sources.empty(), "nobody has a part of the step");
      for (const size_t from : sources)
        require(from < hosts.size() &&
                    std::any_of(hosts[from].parts.begin(), hosts[from].parts.end(),
                                [&](const SpreadPart& part) {
                                  return part.save == choice.step->save &&
                                         part.rank == static_cast<int64_t>(r) &&
                                         part.bytes == rank.bytes &&
                                         part.world ==
                                             static_cast<int64_t>(choice.step->ranks.size());
                                }),
                "somebody is asked for what he does not hold");
      if (sources[0] == h) continue;
      require(rank.bytes <= left, "a host takes more than it has room for");
      left -= rank.bytes;
    }
  }
}

inline void parts(std::string_view bytes) {
  launch::PartWanted wanted;
  launch::PartHead head;
  launch::PartEnd end;
  launch::StagedParts staged;
  is_read(bytes, &wanted);
  is_read(bytes, &head);
  is_read(bytes, &end);
  is_read(bytes, &staged);
  // Reports of up to four hosts, each after two bytes that tell its length.
  std::vector<HostParts> hosts;
  while (bytes.size() > 2 && hosts.size() < 4) {
    const size_t length = static_cast<unsigned char>(bytes[0]) |
                          static_cast<size_t>(static_cast<unsigned char>(bytes[1])) << 8;
    bytes.remove_prefix(2);
    HostParts host;
    if (!is_read(bytes.substr(0, length), &host)) break;
    hosts.push_back(std::move(host));
    bytes.remove_prefix(std::min(length, bytes.size()));
  }
  choose(hosts);
}

}  // namespace trireme::fuzz
