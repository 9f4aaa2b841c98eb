// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/comm/group.h"

// Collectives for typed C++ values: torch.distributed's object collectives, with the codec of
// base/encoding.h in place of pickle. Meant for settings and bookkeeping rather than bulk data:
// each call blocks and copies. Every rank of the group must call with the same type; otherwise
// Mismatch names both types.
namespace trireme {

namespace detail {
TRIREME_API std::vector<std::string> all_gather_bytes(Group& group, const std::string& mine,
                                                      CallSite site);
TRIREME_API std::string broadcast_bytes(Group& group, const std::string& mine, int root,
                                        CallSite site);
/// Returns the values ordered by rank on the root, and nothing elsewhere.
TRIREME_API std::vector<std::string> gather_bytes(Group& group, const std::string& mine, int root,
                                                  CallSite site);
TRIREME_API std::string scatter_bytes(Group& group, const std::vector<std::string>& all, int root,
                                      CallSite site);
TRIREME_API void send_bytes(Group& group, const std::string& bytes, int to, int tag, CallSite site);
TRIREME_API std::string recv_bytes(Group& group, int from, int tag, CallSite site);
}  // namespace detail

/// Returns every rank's value, ordered by rank, on every rank.
template <class T>
std::vector<T> all_gather_object(Group group, const T& mine, CallSite site = CallSite::here()) {
  std::vector<T> all;
  for (const std::string& bytes : detail::all_gather_bytes(group, encode(mine), site))
    all.push_back(decode<T>(bytes));
  return all;
}

/// Returns the root's value on every rank.
template <class T>
T broadcast_object(Group group, const T& mine, int root, CallSite site = CallSite::here()) {
  return decode<T>(detail::broadcast_bytes(group, encode(mine), root, site));
}

/// Returns every rank's value, ordered by rank, on the root, and an empty list elsewhere.
template <class T>
std::vector<T> gather_object(Group group, const T& mine, int root,
                             CallSite site = CallSite::here()) {
  std::vector<T> all;
  for (const std::string& bytes : detail::gather_bytes(group, encode(mine), root, site))
    all.push_back(decode<T>(bytes));
  return all;
}

/// Returns all[rank()] of the root; other ranks may pass an empty list.
template <class T>
T scatter_object(Group group, const std::vector<T>& all, int root,
                 CallSite site = CallSite::here()) {
  std::vector<std::string> bytes;
  if (group.rank() == root)
    for (const T& value : all) bytes.push_back(encode(value));
  return decode<T>(detail::scatter_bytes(group, bytes, root, site));
}

/// Point-to-point: only the two ranks involved call send_object and recv_object.
template <class T>
void send_object(Group group, const T& value, int to, int tag = 0,
                 CallSite site = CallSite::here()) {
  detail::send_bytes(group, encode(value), to, tag, site);
}
template <class T>
T recv_object(Group group, int from, int tag = 0, CallSite site = CallSite::here()) {
  return decode<T>(detail::recv_bytes(group, from, tag, site));
}

}  // namespace trireme
