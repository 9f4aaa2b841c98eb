// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/gloo/collectives.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "trireme/comm/gloo/tags.h"
#include "trireme/comm/local/reduce_kernels.h"
#include "trireme/comm/plan/plan.h"

namespace trireme::detail {

using local::DType;
using plan::part_of;
using plan::Range;

namespace {

constexpr size_t kOneRoundBytes = 512 << 10;  // from one rank: up to here all send all to all
constexpr size_t kSegmentBytes = 1 << 20;     // of what is not reduced, to one rank at a time
constexpr size_t kPartBytes = 1 << 20;        // that a rank reduces at a time; of few ranks
constexpr size_t kPartsBytes = 4 << 20;       // that all ranks do
constexpr size_t kDepth = 4;                  // segments that are on their way to this rank
constexpr size_t kAhead = 8;                  // segments that this rank offers
constexpr int kEverybody = -1;                // as root: all have the result

struct Part {  // what a rank sends to another one
  const char* data;
  size_t bytes;
};

size_t segments_of(size_t count, size_t each) { return (count + each - 1) / each; }
Range segment(size_t count, size_t each, size_t i) {
  return {std::min(count, i * each), std::min(count, (i + 1) * each)};
}

}  // namespace

// Messages that complete together.
struct Collectives::Batch {
  Messenger* messenger;
  CallKey key;
  std::vector<Message> messages = {};

  int tag(int step, size_t bytes) const { return collective_tag(key.seq, key.digest, step, bytes); }
  void send(const void* from, size_t bytes, int to, int step = 0) {
    if (bytes) messages.push_back(messenger->send_soon(from, bytes, to, tag(step, bytes)));
  }
  void recv(void* to, size_t bytes, int from, int step = 0) {
    if (bytes) messages.push_back(messenger->recv_soon(to, bytes, from, tag(step, bytes)));
  }
  void wait() {
    for (Message& m : messages)
      if (messenger->wait(m, Deadline::never()) != Messenger::Outcome::complete) throw Revoked();
    messages.clear();
  }
};

char* Collectives::staging(size_t bytes) {
  if (!staging_.defined() || static_cast<size_t>(staging_.numel()) < bytes)
    staging_ = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  return static_cast<char*>(staging_.data_ptr());
}

// The number of elements that one rank reduces at a time, which limits the memory for peers' parts.
size_t Collectives::part_elements(size_t item) const {
  const size_t bytes =
      std::clamp(kPartsBytes / static_cast<size_t>(size_), kPartBytes / 16, kPartBytes);
  return std::max<size_t>(1, bytes / item);
}

/// start(0), start(1), finish(0), start(2), finish(1), …
template <class Start, class Finish>
void Collectives::in_pairs(size_t segments, Start start, Finish finish) {
  for (size_t s = 0; s <= segments; ++s) {
    if (s < segments) start(s);
    if (s > 0) finish(s - 1);
  }
}

void Collectives::all_reduce(CallKey key, DType dtype, ReduceOp op, void* data, size_t count) {
  reduce_to(key, dtype, op, static_cast<char*>(data), count, kEverybody);
}

void Collectives::reduce(CallKey key, DType dtype, ReduceOp op, void* data, size_t count,
                         int root) {
  reduce_to(key, dtype, op, static_cast<char*>(data), count, root);
}

void Collectives::reduce_to(CallKey key, DType dtype, ReduceOp op, char* data, size_t count,
                            int root) {
  const size_t given = count * size_of(dtype) * static_cast<size_t>(size_ - 1);
  if (given <= kOneRoundBytes)
    exchange_and_reduce(key, dtype, op, data, count, root);
  else
    scatter_and_return(key, dtype, op, data, count, root);
}

// Each rank that gets the result receives the elements of all ranks.
void Collectives::exchange_and_reduce(CallKey key, DType dtype, ReduceOp op, char* data,
                                      size_t count, int root) {
  const size_t bytes = count * size_of(dtype);
  const bool gets = root == kEverybody || root == rank_;
  char* const stage = gets ? staging(static_cast<size_t>(size_ - 1) * bytes) : nullptr;
  std::vector<const void*> parts(static_cast<size_t>(size_), data);
  Batch batch{messenger_, key};
  for (int i = 1; i < size_; ++i)
    if (root == kEverybody || root == peer(i)) batch.send(data, bytes, peer(i));
  for (int i = 1; gets && i < size_; ++i) {
    char* const place = stage + static_cast<size_t>(i - 1) * bytes;
    batch.recv(place, bytes, peer(i));
    parts[static_cast<size_t>(peer(i))] = place;
  }
  batch.wait();
  void* const result = data;
  if (gets) local::reduce(dtype, op, parts.data(), size_, &result, 1, count);
}

// Data is offered before it is requested, so that the thread that moves bytes sends it on request;
// segments are in flight while others are reduced.
template <class PartOf, class Reduce>
void Collectives::scattered(CallKey key, size_t segments, char* stage, size_t room, PartOf part,
                            Reduce reduce) {
  const auto others = static_cast<size_t>(size_ - 1);
  std::vector<Batch> out(segments, Batch{messenger_, key}), in = out;
  size_t offered = 0, wanted = 0;
  for (size_t s = 0; s < segments; ++s) {
    for (; offered < std::min(segments, s + kAhead); ++offered)
      for (int i = 1; i < size_; ++i) {
        const auto theirs = part(offered, peer(i));
        out[offered].send(theirs.data, theirs.bytes, peer(i));
      }
    auto place = [&](size_t k, int i) {
      return stage + (k % kDepth * others + static_cast<size_t>(i - 1)) * room;
    };
    for (; wanted < std::min(segments, s + kDepth); ++wanted)
      for (int i = 1; i < size_; ++i)
        in[wanted].recv(place(wanted, i), part(wanted, rank_).bytes, peer(i));
    in[s].wait();
    out[s].wait();
    std::vector<const void*> parts(static_cast<size_t>(size_), part(s, rank_).data);
    for (int i = 1; i < size_; ++i) parts[static_cast<size_t>(peer(i))] = place(s, i);
    reduce(s, parts.data());
  }
}

// Each rank reduces one part of each segment and sends it to the ranks that get the result. A part
// that returns may overwrite what was sent, since it was made from it.
void Collectives::scatter_and_return(CallKey key, DType dtype, ReduceOp op, char* data,
                                     size_t count, int root) {
  const size_t item = size_of(dtype), n = static_cast<size_t>(size_);
  const size_t each = part_elements(item) * n, segments = segments_of(count, each);
  const bool gets = root == kEverybody || root == rank_;
  const size_t room = (std::min(count, each) / n + 1) * item;
  char* const stage = staging(kDepth * n * room);
  char* const results =
      stage + kDepth * (n - 1) * room;  // the tensors of other ranks are unchanged
  auto range = [&](size_t s, int r) {
    return part_of(segment(count, each, s), n, static_cast<size_t>(r));
  };
  std::vector<Batch> back(segments, Batch{messenger_, key});
  scattered(
      key, segments, stage, room,
      [&](size_t s, int r) {
        return Part{data + range(s, r).begin * item, range(s, r).size() * item};
      },
      [&](size_t s, const void* const* parts) {
        const Range at = range(s, rank_);
        if (!gets && s >= kDepth) back[s - kDepth].wait();
        void* const result = gets ? data + at.begin * item : results + s % kDepth * room;
        local::reduce(dtype, op, parts, size_, &result, 1, at.size());
        for (int i = 1; i < size_; ++i)
          if (root == kEverybody || root == peer(i))
            back[s].send(result, at.size() * item, peer(i), 1);
        for (int i = 1; gets && i < size_; ++i) {
          const Range theirs = range(s, peer(i));
          back[s].recv(data + theirs.begin * item, theirs.size() * item, peer(i), 1);
        }
      });
  for (Batch& batch : back) batch.wait();
}

void Collectives::reduce_scatter(CallKey key, DType dtype, ReduceOp op, void* out, const void* in,
                                 size_t count) {
  const size_t item = size_of(dtype), each = part_elements(item);
  const size_t room = std::min(count, each) * item;
  scattered(
      key, segments_of(count, each), staging(kDepth * static_cast<size_t>(size_ - 1) * room), room,
      [&](size_t s, int r) {
        const Range at = segment(count, each, s);
        return Part{
            static_cast<const char*>(in) + (static_cast<size_t>(r) * count + at.begin) * item,
            at.size() * item};
      },
      [&](size_t s, const void* const* parts) {
        const Range at = segment(count, each, s);
        void* const result = static_cast<char*>(out) + at.begin * item;
        local::reduce(dtype, op, parts, size_, &result, 1, at.size());
      });
}

// A binomial tree: the rank at distance d from the root gets it from d without its highest bit.
void Collectives::broadcast(CallKey key, void* data, size_t bytes, int root) {
  const int distance = (rank_ - root + size_) % size_;
  auto rank_at = [&](int d) { return (d + root) % size_; };
  std::vector<int> children;
  int parent = -1;
  for (int bit = 1; bit < size_; bit <<= 1) {
    if (bit <= distance)
      parent = rank_at(distance - bit);
    else if (distance + bit < size_)
      children.push_back(rank_at(distance + bit));
  }
  // The furthest subtree first.
  std::reverse(children.begin(), children.end());
  const size_t each = size_ == 2 ? bytes : kSegmentBytes;
  if (bytes == 0) return;
  Batch in[2] = {{messenger_, key}, {messenger_, key}}, out{messenger_, key};
  in_pairs(
      segments_of(bytes, each),
      [&](size_t s) {
        const Range at = segment(bytes, each, s);
        if (parent >= 0) in[s % 2].recv(static_cast<char*>(data) + at.begin, at.size(), parent);
      },
      [&](size_t s) {
        const Range at = segment(bytes, each, s);
        in[s % 2].wait();
        for (int child : children) out.send(static_cast<char*>(data) + at.begin, at.size(), child);
      });
  out.wait();
}

void Collectives::gather(CallKey key, void* out, const void* in, size_t bytes, int root) {
  Batch batch{messenger_, key};
  if (rank_ != root) {
    batch.send(in, bytes, root);
    return batch.wait();
  }
  auto* p = static_cast<char*>(out);
  auto part = [&](int r) { return p + static_cast<size_t>(r) * bytes; };
  for (int i = 1; i < size_; ++i) batch.recv(part(peer(i)), bytes, peer(i));
  if (bytes) std::memmove(part(rank_), in, bytes);
  batch.wait();
}

void Collectives::scatter(CallKey key, void* out, const void* in, size_t bytes, int root) {
  Batch batch{messenger_, key};
  if (rank_ != root) {
    batch.recv(out, bytes, root);
    return batch.wait();
  }
  const auto* p = static_cast<const char*>(in);
  auto part = [&](int r) { return p + static_cast<size_t>(r) * bytes; };
  for (int i = 1; i < size_; ++i) batch.send(part(peer(i)), bytes, peer(i));
  if (bytes) std::memmove(out, part(rank_), bytes);
  batch.wait();
}

void Collectives::all_gather(CallKey key, void* out, const void* in, size_t bytes) {
  auto* p = static_cast<char*>(out);
  auto part = [&](int r) { return p + static_cast<size_t>(r) * bytes; };
  Batch batch{messenger_, key};
  for (int i = 1; i < size_; ++i) batch.send(in, bytes, peer(i));
  for (int i = 1; i < size_; ++i) batch.recv(part(peer(i)), bytes, peer(i));
  if (bytes) std::memmove(part(rank_), in, bytes);
  batch.wait();
}

void Collectives::all_to_all(CallKey key, void* out, const void* in,
                             const std::vector<size_t>& out_bytes,
                             const std::vector<size_t>& in_bytes) {
  std::vector<size_t> out_at(out_bytes.size() + 1), in_at(in_bytes.size() + 1);
  for (size_t r = 0; r < out_bytes.size(); ++r) {
    out_at[r + 1] = out_at[r] + out_bytes[r];
    in_at[r + 1] = in_at[r] + in_bytes[r];
  }
  auto* to = static_cast<char*>(out);
  const auto* from = static_cast<const char*>(in);
  Batch batch{messenger_, key};
  for (int i = 1; i < size_; ++i) {
    const auto p = static_cast<size_t>(peer(i));
    batch.send(from + in_at[p], in_bytes[p], peer(i));
    batch.recv(to + out_at[p], out_bytes[p], peer(i));
  }
  const auto me = static_cast<size_t>(rank_);
  if (in_bytes[me]) std::memmove(to + out_at[me], from + in_at[me], in_bytes[me]);
  batch.wait();
}

// In round k every rank sends to the rank 2^k further on.
void Collectives::barrier(CallKey key) {
  char said = 0, heard = 0;
  for (int step = 1; step < size_; step <<= 1) {
    Batch batch{messenger_, key};
    batch.recv(&heard, 1, (rank_ - step + size_) % size_);
    batch.send(&said, 1, peer(step));
    batch.wait();
  }
}

}  // namespace trireme::detail
