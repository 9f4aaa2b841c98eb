// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/objects.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>

#include "trireme/comm/group_check.h"
#include "trireme/comm/reachable.h"

namespace trireme::detail {
namespace {

at::Tensor bytes_of(int64_t n) { return at::empty({n}, at::kByte); }

// Bytes are on the CPU; if the backend needs another device, they are copied there and back.
at::Device device_of(Group& g) { return reachable_device(g, Collective::all_gather, at::kByte); }

at::Tensor to_wire(Group& g, const std::string& bytes, int64_t room) {
  at::Tensor t = bytes_of(room);
  if (!bytes.empty()) std::memcpy(t.data_ptr(), bytes.data(), bytes.size());
  return t.to(device_of(g));
}

std::string from_wire(const at::Tensor& wire, int64_t at, int64_t n) {
  at::Tensor t = wire.cpu();
  return {static_cast<const char*>(t.data_ptr()) + at, static_cast<size_t>(n)};
}

/// Every rank's number.
std::vector<int64_t> all_gather_number(Group& g, int64_t mine, CallSite site) {
  at::Tensor in = small_tensor(*g.get(), 1), out = small_tensor(*g.get(), g.size());
  in.fill_(mine);
  g.all_gather_into_tensor(out, in, site).wait();
  out = out.cpu();
  const auto* p = static_cast<const int64_t*>(out.data_ptr());
  return {p, p + g.size()};
}

}  // namespace

std::vector<std::string> all_gather_bytes(Group& g, const std::string& mine, CallSite site) {
  const auto sizes = all_gather_number(g, static_cast<int64_t>(mine.size()), site);
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  // One call with room for the longest.
  at::Tensor all = bytes_of(most * g.size()).to(device_of(g));
  g.all_gather_into_tensor(all, to_wire(g, mine, most), site).wait();
  all = all.cpu();
  std::vector<std::string> texts;
  for (int r = 0; r < g.size(); ++r)
    texts.push_back(from_wire(all, r * most, sizes[static_cast<size_t>(r)]));
  return texts;
}

std::string broadcast_bytes(Group& g, const std::string& mine, int root, CallSite site) {
  at::Tensor size = small_tensor(*g.get(), 1);
  size.fill_(static_cast<int64_t>(mine.size()));
  g.broadcast(size, root, site).wait();
  const int64_t n = size.item().toLong();
  at::Tensor wire = g.rank() == root ? to_wire(g, mine, n) : bytes_of(n).to(device_of(g));
  g.broadcast(wire, root, site).wait();
  return from_wire(wire, 0, n);
}

std::vector<std::string> gather_bytes(Group& g, const std::string& mine, int root, CallSite site) {
  const auto sizes = all_gather_number(g, static_cast<int64_t>(mine.size()), site);
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::vector<at::Tensor> parts;
  if (g.rank() == root)
    for (int r = 0; r < g.size(); ++r) parts.push_back(bytes_of(most).to(device_of(g)));
  g.gather(parts, to_wire(g, mine, most), root, site).wait();
  std::vector<std::string> texts;
  for (size_t r = 0; r < parts.size(); ++r) texts.push_back(from_wire(parts[r], 0, sizes[r]));
  return texts;
}

std::string scatter_bytes(Group& g, const std::vector<std::string>& all, int root, CallSite site) {
  check_root(*g.get(), root, "scatter_object");
  check<UsageError>(g.rank() != root || static_cast<int>(all.size()) == g.size(),
                    "scatter_object: {} values for {} ranks", all.size(), g.size());
  const auto n = static_cast<size_t>(g.size());
  at::Tensor sizes = small_tensor(*g.get(), g.size());
  if (g.rank() == root) {
    std::vector<int64_t> list(n);
    for (size_t r = 0; r < n; ++r) list[r] = static_cast<int64_t>(all[r].size());
    sizes.copy_(at::from_blob(list.data(), {g.size()}, at::kLong));
  }
  g.broadcast(sizes, root, site).wait();
  at::Tensor host = sizes.cpu();
  const auto* p = static_cast<const int64_t*>(host.data_ptr());
  const int64_t most = *std::max_element(p, p + n);
  std::vector<at::Tensor> parts;
  if (g.rank() == root)
    for (const std::string& bytes : all) parts.push_back(to_wire(g, bytes, most));
  at::Tensor mine = bytes_of(most).to(device_of(g));
  g.scatter(mine, parts, root, site).wait();
  return from_wire(mine, 0, p[g.rank()]);
}

void send_bytes(Group& g, const std::string& bytes, int to, int tag, CallSite site) {
  at::Tensor size = small_tensor(*g.get(), 1);
  size.fill_(static_cast<int64_t>(bytes.size()));
  at::Tensor wire = to_wire(g, bytes, static_cast<int64_t>(bytes.size()));
  Work first = g.send(size, to, tag, site), second = g.send(wire, to, tag, site);
  first.wait();
  second.wait();
}

std::string recv_bytes(Group& g, int from, int tag, CallSite site) {
  at::Tensor size = small_tensor(*g.get(), 1);
  Work first = g.recv(size, from, tag, site);
  first.wait();
  const int64_t n = size.item().toLong();
  at::Tensor wire = bytes_of(n).to(device_of(g));
  g.recv(wire, from == kAnySource ? first.source() : from, tag, site).wait();
  return from_wire(wire, 0, n);
}

}  // namespace trireme::detail
