// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/comm/local/copy.h"
#include "trireme/comm/local/engine.h"
#include "trireme/comm/local/reduce_kernels.h"
#include "trireme/comm/local/split_plan.h"

// What each collective does with data, on three paths:
//   small   the payload came with the flags: each rank computes what it needs from the slots;
//   direct  peers' buffers are read in place, results are written in place: reduce-scatter by
//           reading, all-gather by writing, in one pass (no rank touches another's chunk);
//   staged  processes' ordinary memory: segments through staging buffers that peers read. Others'
//           ordinary memory is never written.
// all_to_all is in all_to_all.cc.
namespace trireme::local {
namespace {

// Whether what all ranks read and write in a copying call exceeds the caches; it is then streamed.
bool leaves_caches(const Call& c, int size) {
  const size_t one = c.count * size_of(c.dtype), n = static_cast<size_t>(size);
  const size_t bytes = c.op == Collective::all_gather  ? one * n * (n + 1)
                       : c.op == Collective::broadcast ? one * n
                                                       : 2 * one * n;
  return bytes >= stream_from();
}

}  // namespace

// Publishes what peers need to choose a path: the data, or where the buffer is.
void Engine::publish_data(const Pending& p, Slot& slot) {
  const Call& c = p.call;
  if (c.op == Collective::all_to_all) return publish_exchange(p, slot);
  const size_t item = size_of(c.dtype), bytes = unit_count(c.op, c.count, size_) * item;
  if (bytes <= kSmallBytes) {
    const bool gives =
        (c.op != Collective::broadcast && c.op != Collective::scatter) || c.root == rank_;
    if (gives && bytes)
      std::memcpy(bytes <= kInlineBytes ? slot.inline_data : self_->payload[p.seq % kSlots], c.in,
                  bytes);
    slot.flags = 0;
  } else {
    const Shown mine = shown(c.op, c.count, size_, c.root == rank_);
    host_->describe(mine.output ? c.out : c.in, mine.count * item, slot);
  }
}

void Engine::choose_path(Pending& p) {
  const Call& c = p.call;
  if (c.op == Collective::all_to_all) return choose_exchange(p);
  const size_t bytes = unit_count(c.op, c.count, size_) * size_of(c.dtype);
  if (bytes == 0) {
    p.path = Path::nothing;
    return;
  }
  if (size_ == 1 || bytes <= kSmallBytes) {
    p.path = Path::small;
    return;
  }
  uint64_t reachable = 0;
  for (int q = 0; q < size_; ++q)
    if (peer_[q]->slots[p.seq % kSlots].flags & kAddressable) reachable |= uint64_t{1} << q;
  const uint64_t me = uint64_t{1} << rank_, root = uint64_t{1} << c.root, all = others() | me;
  const bool is_root = c.root == rank_;
  bool direct = reachable == all;
  switch (c.op) {
    case Collective::broadcast:  // the root writes a share of it to those that it can reach
      direct = reachable & root;
      p.waits_for = is_root ? others() : reachable & me ? root : 0;
      break;
    case Collective::gather:
    case Collective::scatter:  // at the root's buffer, or the root at everybody's
      p.by_root = !(reachable & root);
      direct = !p.by_root || (reachable | root) == all;
      p.waits_for = is_root == p.by_root ? 0 : is_root ? others() : root;
      break;
    default:
      p.waits_for = others();
  }
  p.path = direct ? Path::direct : Path::staged;
  if (!direct) {
    p.waits_for = 0;
    p.base = self_->consumed.load(std::memory_order_relaxed);
    p.segments = segment_count(c.op, c.count, size_of(c.dtype), size_);
  }
}

// ---- small
// -----------------------------------------------------------------------------------------------------------

const unsigned char* Engine::small_input(const Pending& p, int rank) {
  const Call& c = p.call;
  const uint64_t at = p.seq % kSlots;
  // With one rank the payload may be larger than a slot, so its own memory is used.
  if (rank == rank_) return static_cast<const unsigned char*>(c.in);
  return unit_count(c.op, c.count, size_) * size_of(c.dtype) <= kInlineBytes
             ? peer_[rank]->slots[at].inline_data
             : peer_[rank]->payload[at];
}

void Engine::run_small(Pending& p) {
  const Call& c = p.call;
  const size_t item = size_of(c.dtype), bytes = c.count * item;
  auto* out = static_cast<unsigned char*>(c.out);
  switch (c.op) {
    case Collective::reduce:
      if (c.root != rank_) return;
      [[fallthrough]];
    case Collective::all_reduce:
    case Collective::reduce_scatter: {
      const size_t skip =
          c.op == Collective::reduce_scatter ? bytes * static_cast<size_t>(rank_) : 0;
      const void* src[kMaxRanks];
      for (int q = 0; q < size_; ++q) src[q] = small_input(p, q) + skip;
      void* dst[1] = {out};
      local::reduce(c.dtype, c.red, src, size_, dst, 1, c.count);
      return;
    }
    case Collective::broadcast:
      if (c.root != rank_) std::memcpy(out, small_input(p, c.root), bytes);
      return;
    case Collective::all_gather:
      for (int q = 0; q < size_; ++q)
        std::memmove(out + static_cast<size_t>(q) * bytes, small_input(p, q), bytes);
      return;
    case Collective::gather:
      for (int q = 0; q < size_ && c.root == rank_; ++q)
        std::memmove(out + static_cast<size_t>(q) * bytes, small_input(p, q), bytes);
      return;
    case Collective::scatter:
      std::memmove(out, small_input(p, c.root) + static_cast<size_t>(rank_) * bytes, bytes);
      return;
    case Collective::all_to_all:
      return run_exchange(p);
    default:
      return;
  }
}

// ---- direct
// ----------------------------------------------------------------------------------------------------------

void Engine::run_direct(Pending& p) {
  const Call& c = p.call;
  const size_t item = size_of(c.dtype), bytes = c.count * item;
  const bool rooted =
      c.op == Collective::broadcast || c.op == Collective::gather || c.op == Collective::scatter;
  const bool is_root = c.root == rank_;
  // The others' buffers that this rank needs.
  unsigned char* buffer[kMaxRanks] = {};
  for (int q = 0; q < size_ && c.op != Collective::all_to_all; ++q) {
    const Slot& slot = peer_[q]->slots[p.seq % kSlots];
    if (q == rank_)
      buffer[q] = static_cast<unsigned char*>(const_cast<void*>(c.in));
    else if (slot.flags & kAddressable && (!rooted || is_root || q == c.root))
      buffer[q] = host_->resolve(q, slot, shown(c.op, c.count, size_, q == c.root).count * item);
  }
  auto* out = static_cast<unsigned char*>(c.out);
  // No rank touches what another copies; nothing moves if source and target are the same.
  const bool streamed = leaves_caches(c, size_);
  auto copy = [this, streamed](void* to, const void* from, size_t n, bool from_peer) {
    if (to != from) copy_block(to, from, n, streamed);
    if (from_peer) bytes_read_ += n;
  };
  Span span("comm", name_of(c.named()));
  if (owes_ring_) ring_peers();
  enter_data();
  switch (c.op) {
    case Collective::all_reduce: {
      const Range mine = chunk_of(c.count, item, size_, rank_);
      const void* src[kMaxRanks];
      void* dst[kMaxRanks];
      for (int q = 0; q < size_; ++q) src[q] = dst[q] = buffer[q] + mine.begin * item;
      local::reduce(c.dtype, c.red, src, size_, dst, size_, mine.size());
      bytes_read_ += mine.size() * item * static_cast<size_t>(size_ - 1);
      break;
    }
    case Collective::reduce: {
      const Range mine = chunk_of(c.count, item, size_, rank_);
      const void* src[kMaxRanks];
      for (int q = 0; q < size_; ++q) src[q] = buffer[q] + mine.begin * item;
      void* dst[1] = {buffer[c.root] + mine.begin * item};
      local::reduce(c.dtype, c.red, src, size_, dst, 1, mine.size());
      bytes_read_ += mine.size() * item * static_cast<size_t>(size_ - 1);
      break;
    }
    case Collective::reduce_scatter: {
      const void* src[kMaxRanks];
      for (int q = 0; q < size_; ++q) src[q] = buffer[q] + static_cast<size_t>(rank_) * bytes;
      void* dst[1] = {out};
      local::reduce(c.dtype, c.red, src, size_, dst, 1, c.count);
      bytes_read_ += bytes * static_cast<size_t>(size_ - 1);
      break;
    }
    case Collective::broadcast: {
      const Range shared = chunk_of(c.count, item, size_, 0);
      for (int q = 0; q < size_ && is_root; ++q)
        if (q != rank_ && buffer[q])
          copy(buffer[q] + shared.begin * item, out + shared.begin * item, shared.size() * item,
               false);
      if (is_root) break;
      const bool reached = peer_[rank_]->slots[p.seq % kSlots].flags & kAddressable;
      const size_t skip = reached ? shared.end * item : 0;
      copy(out + skip, buffer[c.root] + skip, bytes - skip, true);
      break;
    }
    case Collective::gather:
      for (int q = 0; q < size_; ++q) {
        const size_t at = static_cast<size_t>(q) * bytes;
        if (is_root && (q == rank_ || p.by_root))
          copy(out + at, buffer[q], bytes, q != rank_);
        else if (q == rank_ && !p.by_root)
          copy(buffer[c.root] + at, c.in, bytes, false);
      }
      break;
    case Collective::scatter:
      for (int q = 0; q < size_; ++q) {
        const size_t at = static_cast<size_t>(q) * bytes;
        if (is_root && (q == rank_ || p.by_root))
          copy(q == rank_ ? out : buffer[q], buffer[rank_] + at, bytes, false);
        else if (q == rank_ && !p.by_root)
          copy(out, buffer[c.root] + at, bytes, true);
      }
      break;
    case Collective::all_to_all:
      run_exchange(p);
      break;
    case Collective::all_gather:
      for (int i = 0; i < size_; ++i) {
        const int q = (rank_ + i) % size_;  // everybody starts elsewhere
        copy(out + static_cast<size_t>(q) * bytes, buffer[q], bytes, q != rank_);
      }
      break;
    default:
      break;
  }
  leave_data();
}

// ---- staged
// ----------------------------------------------------------------------------------------------------------

// One segment: copy what peers need of it into this rank's staging buffer; when all have, reduce or
// copy from theirs; where a result must reach the others (all_reduce, reduce), it lies in the
// chunk's place of the reducer's own staging buffer (which its input left free) and a third step
// copies it out. Two buffers, so that the next segment is staged meanwhile.
bool Engine::run_staged(Pending& p) {
  const Call& c = p.call;
  const size_t item = size_of(c.dtype);
  const auto* in = static_cast<const unsigned char*>(c.in);
  auto* out = static_cast<unsigned char*>(c.out);
  const bool returns = c.op == Collective::all_reduce || c.op == Collective::reduce;
  const auto n = static_cast<size_t>(size_);

  const bool is_root = c.root == rank_, streamed = leaves_caches(c, size_);
  const auto me = static_cast<size_t>(rank_);

  auto stage = [&](uint64_t k) {
    const Range seg = segment_range(c.op, c.count, item, size_, k);
    const size_t bytes = seg.size() * item;
    unsigned char* to = staging_of(self_, p.base + k);
    switch (c.op) {
      case Collective::broadcast:
        if (is_root) std::memcpy(to, in + seg.begin * item, bytes);
        break;
      case Collective::gather:
        if (!is_root) std::memcpy(to, in + seg.begin * item, bytes);
        break;
      case Collective::all_gather:
        std::memcpy(to, in + seg.begin * item, bytes);
        break;
      case Collective::scatter:
      case Collective::reduce_scatter:
        for (size_t q = 0; q < n; ++q)
          if (q != me && (is_root || c.op == Collective::reduce_scatter))
            std::memcpy(to + q * bytes, in + (q * c.count + seg.begin) * item, bytes);
        break;
      case Collective::all_to_all:
        stage_exchange(p, k);
        break;
      default:
        for (int q = 0; q < size_; ++q) {
          if (q == rank_) continue;
          const Range part = chunk_of(seg.size(), item, size_, q);
          std::memcpy(to + part.begin * item, in + (seg.begin + part.begin) * item,
                      part.size() * item);
        }
    }
  };
  auto compute = [&](uint64_t k) {
    const Range seg = segment_range(c.op, c.count, item, size_, k);
    const size_t bytes = seg.size() * item;
    const void* src[kMaxRanks];
    auto copy = [this, streamed](void* to, const void* from, size_t count, bool from_peer) {
      if (to != from) copy_block(to, from, count, streamed);
      if (from_peer) bytes_read_ += count;
    };
    switch (c.op) {
      case Collective::broadcast:
        if (!is_root)
          copy(out + seg.begin * item, staging_of(peer_[c.root], p.base + k), bytes, true);
        break;
      case Collective::gather:
        if (!is_root) break;
        [[fallthrough]];
      case Collective::all_gather:
        for (size_t i = 0; i < n; ++i) {
          const size_t q = (me + i) % n;  // everybody starts elsewhere
          copy(out + (q * c.count + seg.begin) * item,
               q == me ? in + seg.begin * item : staging_of(peer_[q], p.base + k), bytes, q != me);
        }
        break;
      case Collective::scatter:
        copy(out + seg.begin * item,
             is_root ? in + (me * c.count + seg.begin) * item
                     : staging_of(peer_[c.root], p.base + k) + me * bytes,
             bytes, !is_root);
        break;
      case Collective::reduce_scatter: {
        for (size_t q = 0; q < n; ++q)
          src[q] = q == me ? in + (me * c.count + seg.begin) * item
                           : staging_of(peer_[q], p.base + k) + me * bytes;
        void* dst[1] = {out + seg.begin * item};
        local::reduce(c.dtype, c.red, src, size_, dst, 1, seg.size());
        bytes_read_ += bytes * (n - 1);
        break;
      }
      case Collective::all_to_all:
        take_exchange(p, k);
        break;
      default: {
        const Range mine = chunk_of(seg.size(), item, size_, rank_);
        for (int q = 0; q < size_; ++q)
          src[q] = q == rank_ ? in + (seg.begin + mine.begin) * item
                              : staging_of(peer_[q], p.base + k) + mine.begin * item;
        void* dst[2] = {staging_of(self_, p.base + k) + mine.begin * item,
                        out + (seg.begin + mine.begin) * item};
        // A reduce does not change other ranks' buffers.
        const bool keeps = c.op == Collective::all_reduce || is_root;
        local::reduce(c.dtype, c.red, src, size_, dst, keeps ? 2 : 1, mine.size());
        bytes_read_ += mine.size() * item * (n - 1);
      }
    }
  };
  auto copy_out = [&](uint64_t k) {
    const Range seg = segment_range(c.op, c.count, item, size_, k);
    if (c.op == Collective::reduce && c.root != rank_) return;
    for (int q = 0; q < size_; ++q) {
      if (q == rank_) continue;
      const Range part = chunk_of(seg.size(), item, size_, q);
      std::memcpy(out + (seg.begin + part.begin) * item,
                  staging_of(peer_[q], p.base + k) + part.begin * item, part.size() * item);
    }
  };

  while (p.copied < p.segments) {
    bool moved = false;
    // Buffer (base + staged) % 2 is free once everybody, this rank too, has consumed the segment
    // before last.
    const uint64_t absolute = p.base + p.staged;
    if (p.staged < p.segments && p.staged <= p.copied + 1 &&
        (absolute < 2 || all(&Control::consumed, absolute - 1))) {
      stage(p.staged++);
      publish_flag(self_->staged, p.base + p.staged);
      ring_peers();
      moved = true;
    }
    if (returns && p.copied < p.reduced && all(&Control::reduced, p.base + p.copied + 1)) {
      copy_out(p.copied++);
      publish_flag(self_->consumed, p.base + p.copied);
      ring_peers();
      moved = true;
    }
    if (p.reduced < p.staged && all(&Control::staged, p.base + p.reduced + 1)) {
      compute(p.reduced++);
      publish_flag(self_->reduced, p.base + p.reduced);
      if (!returns) {
        p.copied = p.reduced;
        publish_flag(self_->consumed, p.base + p.copied);
      }
      moved = true;
    }
    if (!moved) return false;
  }
  return true;
}

}  // namespace trireme::local
