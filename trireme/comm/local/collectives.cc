// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/comm/local/engine.h"
#include "trireme/comm/local/reduce_kernels.h"
#include "trireme/comm/local/split_plan.h"

// What each collective does with data, on three paths:
//   small   the payload came with the flags: each rank computes what it needs from the slots;
//   direct  peers' buffers are read in place, results are written in place: reduce-scatter by
//   reading, all-gather by
//           writing, in one pass (no rank touches another's chunk);
//   staged  processes' ordinary memory: segments through staging buffers that peers read. Others'
//   ordinary memory is
//           never written.
namespace trireme::local {
namespace {

size_t input_count(const Call& c, int size) {
  return c.op == OpKind::reduce_scatter ? c.count * static_cast<size_t>(size) : c.count;
}

}  // namespace

void Engine::choose_path(Pending& p) {
  const Call& c = p.call;
  const size_t bytes = input_count(c, size_) * size_of(c.dtype);
  if (bytes == 0) {
    p.path = Path::nothing;
  } else if (size_ == 1 || bytes <= kSmallBytes) {
    p.path = Path::small;
  } else {
    bool direct = true;
    for (int q = 0; q < size_ && direct; ++q)
      if (c.op != OpKind::broadcast || q == c.root)
        direct = peer_[q]->slots[p.seq % kSlots].flags & kAddressable;
    p.path = direct ? Path::direct : Path::staged;
    p.waits_for_all = direct;
    if (!direct) {
      p.base = self_->consumed.load(std::memory_order_relaxed);
      p.segments = segment_count(c.op, c.count, size_of(c.dtype), size_);
    }
  }
}

// ---- small
// -----------------------------------------------------------------------------------------------------------

const unsigned char* Engine::small_input(const Pending& p, int rank) {
  const Call& c = p.call;
  const uint64_t at = p.seq % kSlots;
  // With one rank the payload may be larger than a slot: its own memory serves.
  if (rank == rank_) return static_cast<const unsigned char*>(c.in);
  return input_count(c, size_) * size_of(c.dtype) <= kInlineBytes
             ? peer_[rank]->slots[at].inline_data
             : peer_[rank]->payload[at];
}

void Engine::run_small(Pending& p) {
  const Call& c = p.call;
  const size_t item = size_of(c.dtype), bytes = c.count * item;
  auto* out = static_cast<unsigned char*>(c.out);
  switch (c.op) {
    case OpKind::reduce:
      if (c.root != rank_) return;
      [[fallthrough]];
    case OpKind::all_reduce:
    case OpKind::reduce_scatter: {
      const size_t skip = c.op == OpKind::reduce_scatter ? bytes * static_cast<size_t>(rank_) : 0;
      const void* src[kMaxRanks];
      for (int q = 0; q < size_; ++q) src[q] = small_input(p, q) + skip;
      void* dst[1] = {out};
      local::reduce(c.dtype, c.red, src, size_, dst, 1, c.count);
      return;
    }
    case OpKind::broadcast:
      if (c.root != rank_) std::memcpy(out, small_input(p, c.root), bytes);
      return;
    case OpKind::all_gather:
      for (int q = 0; q < size_; ++q)
        std::memmove(out + static_cast<size_t>(q) * bytes, small_input(p, q), bytes);
      return;
    default:
      return;
  }
}

// ---- direct
// ----------------------------------------------------------------------------------------------------------

void Engine::run_direct(Pending& p) {
  const Call& c = p.call;
  const size_t item = size_of(c.dtype), bytes = c.count * item,
               in_bytes = input_count(c, size_) * item;
  unsigned char* buffer[kMaxRanks];
  for (int q = 0; q < size_; ++q) {
    if (c.op == OpKind::broadcast && q != c.root) continue;
    buffer[q] = q == rank_ ? static_cast<unsigned char*>(const_cast<void*>(c.in))
                           : host_->resolve(q, peer_[q]->slots[p.seq % kSlots], in_bytes);
  }
  auto* out = static_cast<unsigned char*>(c.out);
  Span span("comm", name_of(c.op));
  if (owes_ring_) ring_peers();
  enter_data();
  switch (c.op) {
    case OpKind::all_reduce: {
      const Range mine = chunk_of(c.count, item, size_, rank_);
      const void* src[kMaxRanks];
      void* dst[kMaxRanks];
      for (int q = 0; q < size_; ++q) src[q] = dst[q] = buffer[q] + mine.begin * item;
      local::reduce(c.dtype, c.red, src, size_, dst, size_, mine.size());
      bytes_read_ += mine.size() * item * static_cast<size_t>(size_ - 1);
      break;
    }
    case OpKind::reduce: {
      const Range mine = chunk_of(c.count, item, size_, rank_);
      const void* src[kMaxRanks];
      for (int q = 0; q < size_; ++q) src[q] = buffer[q] + mine.begin * item;
      void* dst[1] = {buffer[c.root] + mine.begin * item};
      local::reduce(c.dtype, c.red, src, size_, dst, 1, mine.size());
      bytes_read_ += mine.size() * item * static_cast<size_t>(size_ - 1);
      break;
    }
    case OpKind::reduce_scatter: {
      const void* src[kMaxRanks];
      for (int q = 0; q < size_; ++q) src[q] = buffer[q] + static_cast<size_t>(rank_) * bytes;
      void* dst[1] = {out};
      local::reduce(c.dtype, c.red, src, size_, dst, 1, c.count);
      bytes_read_ += bytes * static_cast<size_t>(size_ - 1);
      break;
    }
    case OpKind::broadcast:
      if (c.root != rank_) {
        std::memcpy(out, buffer[c.root], bytes);
        bytes_read_ += bytes;
      }
      break;
    case OpKind::all_gather:
      for (int i = 0; i < size_; ++i) {
        const int q = (rank_ + i) % size_;  // everybody starts elsewhere
        unsigned char* to = out + static_cast<size_t>(q) * bytes;
        if (to != buffer[q]) std::memcpy(to, buffer[q], bytes);
      }
      bytes_read_ += bytes * static_cast<size_t>(size_ - 1);
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
  const bool returns = c.op == OpKind::all_reduce || c.op == OpKind::reduce;
  const auto n = static_cast<size_t>(size_);

  auto stage = [&](uint64_t k) {
    const Range seg = segment_range(c.op, c.count, item, size_, k);
    unsigned char* to = staging_of(self_, p.base + k);
    if (c.op == OpKind::broadcast) {
      if (c.root == rank_) std::memcpy(to, in + seg.begin * item, seg.size() * item);
    } else if (c.op == OpKind::all_gather) {
      std::memcpy(to, in + seg.begin * item, seg.size() * item);
    } else if (c.op == OpKind::reduce_scatter) {
      for (size_t q = 0; q < n; ++q)
        if (static_cast<int>(q) != rank_)
          std::memcpy(to + q * seg.size() * item, in + (q * c.count + seg.begin) * item,
                      seg.size() * item);
    } else {
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
    const void* src[kMaxRanks];
    if (c.op == OpKind::broadcast) {
      if (c.root != rank_) {
        std::memcpy(out + seg.begin * item, staging_of(peer_[c.root], p.base + k),
                    seg.size() * item);
        bytes_read_ += seg.size() * item;
      }
    } else if (c.op == OpKind::all_gather) {
      for (size_t q = 0; q < n; ++q) {
        unsigned char* to = out + (q * c.count + seg.begin) * item;
        const unsigned char* from =
            static_cast<int>(q) == rank_ ? in + seg.begin * item : staging_of(peer_[q], p.base + k);
        if (to != from) std::memcpy(to, from, seg.size() * item);
      }
      bytes_read_ += seg.size() * item * (n - 1);
    } else if (c.op == OpKind::reduce_scatter) {
      const auto r = static_cast<size_t>(rank_);
      for (size_t q = 0; q < n; ++q)
        src[q] = static_cast<int>(q) == rank_
                     ? in + (r * c.count + seg.begin) * item
                     : staging_of(peer_[q], p.base + k) + r * seg.size() * item;
      void* dst[1] = {out + seg.begin * item};
      local::reduce(c.dtype, c.red, src, size_, dst, 1, seg.size());
      bytes_read_ += seg.size() * item * (n - 1);
    } else {
      const Range mine = chunk_of(seg.size(), item, size_, rank_);
      for (int q = 0; q < size_; ++q)
        src[q] = q == rank_ ? in + (seg.begin + mine.begin) * item
                            : staging_of(peer_[q], p.base + k) + mine.begin * item;
      void* dst[2] = {staging_of(self_, p.base + k) + mine.begin * item,
                      out + (seg.begin + mine.begin) * item};
      // A reduce leaves the other ranks' buffers alone.
      const bool keeps = c.op == OpKind::all_reduce || c.root == rank_;
      local::reduce(c.dtype, c.red, src, size_, dst, keeps ? 2 : 1, mine.size());
      bytes_read_ += mine.size() * item * (n - 1);
    }
  };
  auto copy_out = [&](uint64_t k) {
    const Range seg = segment_range(c.op, c.count, item, size_, k);
    if (c.op == OpKind::reduce && c.root != rank_) return;
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
