// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/comm/group.h"

// Typed values between ranks: what torch.distributed calls object collectives, by the codec of
// base/encoding.h in place of pickle. For settings and bookkeeping, not for data: each call waits,
// and copies. Every rank of the group calls it, with the same type: another one is a Mismatch that
// names both.
namespace trireme {

namespace detail {
TRIREME_API std::vector<std::string> all_gather_bytes(Group& group, const std::string& mine,
                                                      CallSite site);
TRIREME_API std::string broadcast_bytes(Group& group, const std::string& mine, int root,
                                        CallSite site);
/// By rank on the root, empty elsewhere.
TRIREME_API std::vector<std::string> gather_bytes(Group& group, const std::string& mine, int root,
                                                  CallSite site);
TRIREME_API std::string scatter_bytes(Group& group, const std::vector<std::string>& all, int root,
                                      CallSite site);
TRIREME_API void send_bytes(Group& group, const std::string& bytes, int to, int tag, CallSite site);
TRIREME_API std::string recv_bytes(Group& group, int from, int tag, CallSite site);
}  // namespace detail

/// Every rank's value, by rank.
template <class T>
std::vector<T> all_gather_object(Group group, const T& mine, CallSite site = CallSite::here()) {
  std::vector<T> all;
  for (const std::string& bytes : detail::all_gather_bytes(group, encode(mine), site))
    all.push_back(decode<T>(bytes));
  return all;
}

/// The root's value, on every rank.
template <class T>
T broadcast_object(Group group, const T& mine, int root, CallSite site = CallSite::here()) {
  return decode<T>(detail::broadcast_bytes(group, encode(mine), root, site));
}

/// Every rank's value on the root, nothing elsewhere.
template <class T>
std::vector<T> gather_object(Group group, const T& mine, int root,
                             CallSite site = CallSite::here()) {
  std::vector<T> all;
  for (const std::string& bytes : detail::gather_bytes(group, encode(mine), root, site))
    all.push_back(decode<T>(bytes));
  return all;
}

/// all[rank()] of the root, which alone needs to have them.
template <class T>
T scatter_object(Group group, const std::vector<T>& all, int root,
                 CallSite site = CallSite::here()) {
  std::vector<std::string> bytes;
  if (group.rank() == root)
    for (const T& value : all) bytes.push_back(encode(value));
  return decode<T>(detail::scatter_bytes(group, bytes, root, site));
}

/// Only these two ranks call.
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
