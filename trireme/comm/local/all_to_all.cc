// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/comm/local/copy.h"
#include "trireme/comm/local/engine.h"
#include "trireme/comm/local/exchange_plan.h"

// all_to_all. Parts need not be equal, so ranks know each other's counts only from their slots: one
// number where all parts of a rank are equal, else a table at the beginning of the payload. Every
// rank compares every pair, and so all of them find the same fault or the same path.
namespace trireme::local {
namespace {

const uint64_t* table_of(Control* c, uint64_t seq) {
  return reinterpret_cast<const uint64_t*>(c->payload[seq % kSlots]);
}

size_t table_bytes(uint64_t each, int size) {
  return each == kUneven ? 2 * static_cast<size_t>(size) * sizeof(uint64_t) : 0;
}

uint64_t sum(const uint64_t* v, int n) {
  uint64_t total = 0;
  for (int i = 0; i < n; ++i) total += v[i];
  return total;
}

}  // namespace

// The caller's arrays may no longer exist when the call is published.
void Engine::keep_counts(Pending& p) {
  Call& c = p.call;
  const auto n = static_cast<size_t>(size_);
  p.each = c.send_counts[0];
  for (size_t q = 0; q < n; ++q)
    if (c.send_counts[q] != p.each || c.recv_counts[q] != p.each) p.each = kUneven;
  c.count = sum(c.send_counts, size_);
  if (p.each == kUneven) {
    p.counts.reset(new uint64_t[2 * n]);
    std::memcpy(p.counts.get(), c.send_counts, n * sizeof(uint64_t));
    std::memcpy(p.counts.get() + n, c.recv_counts, n * sizeof(uint64_t));
  }
  c.send_counts = c.recv_counts = nullptr;
}

void Engine::publish_exchange(const Pending& p, Slot& slot) {
  const size_t bytes = p.call.count * size_of(p.call.dtype), table = table_bytes(p.each, size_);
  unsigned char* payload = self_->payload[p.seq % kSlots];
  slot.each = p.each;
  if (table) std::memcpy(payload, p.counts.get(), table);
  if (table + bytes <= kSmallBytes) {
    slot.flags = kCarried;
    if (bytes)
      std::memcpy(!table && bytes <= kInlineBytes ? slot.inline_data : payload + table, p.call.in,
                  bytes);
  } else {
    host_->describe(p.call.in, bytes, slot);
  }
}

/// Elements that `from` sends to `to`, as it published them.
uint64_t Engine::part(const Pending& p, int from, int to) const {
  const uint64_t each = peer_[from]->slots[p.seq % kSlots].each;
  return each != kUneven ? each : table_of(peer_[from], p.seq)[to];
}

/// Returns what a rank sends, if it came with the slot.
const unsigned char* Engine::carried(const Pending& p, int rank) const {
  if (rank == rank_) return static_cast<const unsigned char*>(p.call.in);
  const Slot& slot = peer_[rank]->slots[p.seq % kSlots];
  if (!(slot.flags & kCarried)) return nullptr;
  const size_t table = table_bytes(slot.each, size_);
  if (!table && slot.each * static_cast<size_t>(size_) * size_of(p.call.dtype) <= kInlineBytes)
    return slot.inline_data;
  return peer_[rank]->payload[p.seq % kSlots] + table;
}

void Engine::check_exchange(const Pending& p) {
  bool even = true;
  for (int q = 0; q < size_ && even; ++q)
    even = p.each != kUneven && peer_[q]->slots[p.seq % kSlots].each == p.each;
  if (even) return;
  auto expected = [&](int by, int from) {
    const uint64_t each = peer_[by]->slots[p.seq % kSlots].each;
    return each != kUneven ? each : table_of(peer_[by], p.seq)[size_ + from];
  };
  for (int from = 0; from < size_; ++from)
    for (int to = 0; to < size_; ++to)
      if (part(p, from, to) != expected(to, from))
        raise_uneven(p, from, to, part(p, from, to), expected(to, from));
}

// Small if every rank's parts came with its slot; direct if peers can access the others' buffers.
void Engine::choose_exchange(Pending& p) {
  const size_t item = size_of(p.call.dtype);
  const size_t room = segment_bytes(size_) / item;
  bool small = true, direct = true, any = false;
  uint64_t segments = 0;
  for (int q = 0; q < size_; ++q) {
    const size_t foreign = stream_offset([&](int to) { return part(p, q, to); }, size_, q, q);
    const uint32_t flags = peer_[q]->slots[p.seq % kSlots].flags;
    any = any || foreign || part(p, q, q);
    small = small && (flags & kCarried || size_ == 1);
    direct = direct && (flags & (kCarried | kAddressable) || foreign == 0);
    segments = std::max<uint64_t>(segments, (foreign + room - 1) / room);
  }
  p.path = !any ? Path::nothing : small ? Path::small : direct ? Path::direct : Path::staged;
  if (p.path == Path::direct && !(self_->slots[p.seq % kSlots].flags & kCarried)) {
    for (int q = 0; q < size_; ++q)
      if (q != rank_ && part(p, rank_, q)) p.waits_for |= uint64_t{1} << q;
  } else if (p.path == Path::staged) {
    p.base = self_->consumed.load(std::memory_order_relaxed);
    p.segments = segments;
  }
}

// Reads every rank's part for this one, where it came with the slot or in place. The ranks begin
// with different peers.
void Engine::run_exchange(const Pending& p) {
  const size_t item = size_of(p.call.dtype);
  size_t to[kMaxRanks], at = 0;
  for (int q = 0; q < size_; ++q) {
    to[q] = at;
    at += part(p, q, rank_) * item;
  }
  auto* out = static_cast<unsigned char*>(p.call.out);
  // Assumes that all ranks send as much as this one receives.
  const bool streamed = 2 * at * static_cast<size_t>(size_) >= stream_from();
  for (int i = 0; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    const size_t bytes = part(p, q, rank_) * item;
    if (bytes == 0) continue;
    size_t before = 0, whole = 0;
    for (int r = 0; r < size_; ++r) {
      const size_t one = part(p, q, r) * item;
      if (r < rank_) before += one;
      whole += one;
    }
    const unsigned char* from = carried(p, q);
    if (!from) from = host_->resolve(q, peer_[q]->slots[p.seq % kSlots], whole);
    copy_block(out + to[q], from + before, bytes, streamed);
    if (q != rank_) bytes_read_ += bytes;
  }
}

void Engine::stage_exchange(const Pending& p, uint64_t k) {
  const size_t item = size_of(p.call.dtype), each = segment_bytes(size_) / item;
  const auto* in = static_cast<const unsigned char*>(p.call.in);
  unsigned char* staging = staging_of(self_, p.base + k);
  size_t offset[kMaxRanks], at = 0;
  for (int q = 0; q < size_; ++q) {
    offset[q] = at;
    at += part(p, rank_, q);
  }
  size_t stream = 0;
  for (int i = 1; i < size_; ++i) {
    const int q = (rank_ + i) % size_;
    const size_t count = part(p, rank_, q);
    const Piece piece = piece_of(stream, count, each, k);
    if (piece.size)
      std::memcpy(staging + piece.of_segment * item, in + (offset[q] + piece.of_part) * item,
                  piece.size * item);
    stream += count;
  }
}

void Engine::take_exchange(const Pending& p, uint64_t k) {
  const size_t item = size_of(p.call.dtype), each = segment_bytes(size_) / item;
  auto* out = static_cast<unsigned char*>(p.call.out);
  size_t to = 0, own = 0, all = 0;
  for (int q = 0; q < size_; ++q) all += part(p, q, rank_) * item;
  const bool streamed = 2 * all * static_cast<size_t>(size_) >= stream_from();
  for (int q = 0; q < rank_; ++q) own += part(p, rank_, q);
  for (int q = 0; q < size_; ++q) {
    const size_t count = part(p, q, rank_);
    if (q == rank_) {
      if (k == 0 && count)
        copy_block(out + to * item, static_cast<const unsigned char*>(p.call.in) + own * item,
                   count * item, streamed);
    } else if (count) {
      const size_t offset = stream_offset([&](int r) { return part(p, q, r); }, size_, q, rank_);
      const Piece piece = piece_of(offset, count, each, k);
      if (piece.size)
        copy_block(out + (to + piece.of_part) * item,
                   staging_of(peer_[q], p.base + k) + piece.of_segment * item, piece.size * item,
                   streamed);
      bytes_read_ += piece.size * item;
    }
    to += count;
  }
}

}  // namespace trireme::local
