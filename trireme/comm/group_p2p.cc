// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/zeros.h>
#include <sched.h>

#include "trireme/comm/group_check.h"

// Point-to-point calls, and what is built on them.
namespace trireme {

using detail::check_tensor;
using detail::copy_back;
using detail::Dense;

namespace {

constexpr int kMonitoredTag = -2;  // users' tags are not negative

detail::Token post_send(detail::Backend& b, const at::Tensor& t, int to, int tag, CallSite site) {
  return b.post(
      {.op = Collective::send, .root = to, .tag = tag, .input = &t, .output = &t, .site = site});
}
detail::Token post_recv(detail::Backend& b, const at::Tensor& t, int from, int tag, CallSite site) {
  return b.post(
      {.op = Collective::recv, .root = from, .tag = tag, .input = &t, .output = &t, .site = site});
}

void check_tag(int tag, const char* what) {
  if (tag < 0) [[unlikely]]
    fail<UsageError>("{}: tag {}; tags must not be negative", what, tag);
}

void check_peer(const detail::Backend& b, int peer, bool any, const char* what) {
  if ((peer < 0 || peer >= b.size() || peer == b.rank()) && !(any && peer == kAnySource))
      [[unlikely]]
    fail<UsageError>("{}: there is no other rank {} in a group of {} (this is rank {})", what, peer,
                     b.size(), b.rank());
}

}  // namespace

Work Group::send(const at::Tensor& t, int to, int tag, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::send, t, "send");
  check_peer(b, to, false, "send");
  check_tag(tag, "send");
  return work(post_send(b, Dense(t).tensor, to, tag, site));
}

Work Group::recv(const at::Tensor& t, int from, int tag, CallSite site) {
  auto& b = checked();
  check_tensor(b, Collective::recv, t, "recv");
  check_peer(b, from, true, "recv");
  check_tag(tag, "recv");
  Dense dense(t);
  auto token = post_recv(b, dense.tensor, from, tag, site);
  if (dense.copied) copy_back(b, token, t, dense.tensor);
  if (token.kind == 0 && token.peer >= 0) return Work(nullptr, token);  // for source()
  return Work(backend_, token);
}

Work Group::isend(const at::Tensor& t, int to, int tag, CallSite site) {
  return send(t, to, tag, site);
}
Work Group::irecv(const at::Tensor& t, int from, int tag, CallSite site) {
  return recv(t, from, tag, site);
}

// Receives first, so that arriving data finds its place. No call waits, so no order can deadlock.
std::vector<Work> Group::batch_isend_irecv(const std::vector<P2POp>& ops, CallSite site) {
  for (const P2POp& op : ops) {
    const char* what = "batch_isend_irecv";
    check_tensor(checked(), op.kind == P2POp::isend ? Collective::send : Collective::recv,
                 op.tensor, what);
    check_peer(checked(), op.peer, op.kind == P2POp::irecv, what);
    check_tag(op.tag, what);
  }
  std::vector<Work> works(ops.size());
  for (auto kind : {P2POp::irecv, P2POp::isend})
    for (size_t i = 0; i < ops.size(); ++i)
      if (ops[i].kind == kind)
        works[i] = kind == P2POp::irecv ? recv(ops[i].tensor, ops[i].peer, ops[i].tag, site)
                                        : send(ops[i].tensor, ops[i].peer, ops[i].tag, site);
  return works;
}

void Group::monitored_barrier(Duration timeout, bool wait_all_ranks, CallSite site) {
  auto& b = checked();
  if (b.size() == 1) return;
  const Deadline deadline = Deadline::after(timeout);
  at::Tensor byte = detail::small_tensor(b, 1);
  if (b.rank() != 0) {
    b.wait(post_send(b, byte, 0, kMonitoredTag, site), timeout);
    // Rank 0 reports when all have arrived. It may need all of the time to find out which ranks
    // have not.
    b.wait(post_recv(b, byte, 0, kMonitoredTag, site), timeout + std::chrono::seconds(2));
    return;
  }
  std::vector<detail::Token> came;
  std::vector<at::Tensor> bytes;
  for (int r = 1; r < b.size(); ++r) {
    bytes.push_back(detail::small_tensor(b, 1));
    came.push_back(post_recv(b, bytes.back(), r, kMonitoredTag, site));
  }
  const std::vector<int> of_world = world_ranks();
  std::string missing;
  auto is_here = [&](size_t i) { return b.completed(came[i]); };
  for (size_t i = 0; i < came.size(); ++i) {
    while (!is_here(i) && !deadline.expired()) ::sched_yield();
    if (is_here(i)) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(of_world[i + 1]);
    if (!wait_all_ranks) break;
  }
  if (!missing.empty()) {
    const std::string why =
        fmt::format("monitored_barrier at {}:{}: rank {} did not come within {:.3g} s", site.file,
                    site.line, missing, std::chrono::duration<double>(timeout).count());
    b.abort(why, detail::AbortKind::timeout);
    throw Timeout(why, {b.rank(), -1, "monitored_barrier", 0});
  }
  std::vector<detail::Token> announced;
  for (int r = 1; r < b.size(); ++r)
    announced.push_back(post_send(b, byte, r, kMonitoredTag, site));
  for (detail::Token t : announced) b.wait(t, b.timeout());
}

}  // namespace trireme
