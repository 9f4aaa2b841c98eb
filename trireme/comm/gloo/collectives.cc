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
using local::RedOp;
using plan::part_of;
using plan::Range;

namespace {

constexpr size_t kSmallBytes = 8 << 10;    // up to here one round, however many ranks
constexpr size_t kSegmentBytes = 1 << 20;  // to one rank at a time
constexpr int kEverybody = -1;             // as root: all have the result

size_t segments_of(size_t count, size_t each) { return (count + each - 1) / each; }
Range segment(size_t count, size_t each, size_t i) {
  return {std::min(count, i * each), std::min(count, (i + 1) * each)};
}

}  // namespace

// Messages that are waited for together.
struct Collectives::Batch {
  Messenger* messenger;
  CallKey key;
  std::vector<Message> messages = {};

  int tag(int step, size_t bytes) const { return collective_tag(key.seq, key.digest, step, bytes); }
  void send(const void* from, size_t bytes, int to, int step = 0) {
    if (bytes) messages.push_back(messenger->send(from, bytes, to, tag(step, bytes)));
  }
  void recv(void* to, size_t bytes, int from, int step = 0) {
    if (bytes) messages.push_back(messenger->recv(to, bytes, from, tag(step, bytes)));
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

/// start(0), start(1), finish(0), start(2), finish(1), …
template <class Start, class Finish>
void Collectives::in_pairs(size_t segments, Start start, Finish finish) {
  for (size_t s = 0; s <= segments; ++s) {
    if (s < segments) start(s);
    if (s > 0) finish(s - 1);
  }
}

void Collectives::all_reduce(CallKey key, DType dtype, RedOp op, void* data, size_t count) {
  auto* p = static_cast<char*>(data);
  if (size_ == 2 || count * size_of(dtype) <= kSmallBytes)
    exchange_and_reduce(key, dtype, op, p, count, kEverybody);
  else
    scatter_and_return(key, dtype, op, p, count, kEverybody);
}

void Collectives::reduce(CallKey key, DType dtype, RedOp op, void* data, size_t count, int root) {
  auto* p = static_cast<char*>(data);
  if (size_ == 2 || count * size_of(dtype) <= kSmallBytes)
    exchange_and_reduce(key, dtype, op, p, count, root);
  else
    scatter_and_return(key, dtype, op, p, count, root);
}

// Whoever gets the result gets everybody's elements.
void Collectives::exchange_and_reduce(CallKey key, DType dtype, RedOp op, char* data, size_t count,
                                      int root) {
  const size_t item = size_of(dtype), each = kSegmentBytes / item;
  const bool gets = root == kEverybody || root == rank_;
  const auto others = static_cast<size_t>(size_ - 1);
  const size_t room = std::min(count, each) * item;
  char* const stage = gets ? staging(2 * others * room) : nullptr;
  auto place = [&](size_t s, int r) {
    return stage + (s % 2 * others + static_cast<size_t>(r < rank_ ? r : r - 1)) * room;
  };
  Batch batches[2] = {{messenger_, key}, {messenger_, key}};
  in_pairs(
      segments_of(count, each),
      [&](size_t s) {
        const Range at = segment(count, each, s);
        Batch& batch = batches[s % 2];
        for (int i = 1; i < size_; ++i) {
          if (gets) batch.recv(place(s, peer(i)), at.size() * item, peer(i));
          if (root == kEverybody || root == peer(i))
            batch.send(data + at.begin * item, at.size() * item, peer(i));
        }
      },
      [&](size_t s) {
        batches[s % 2].wait();
        if (!gets) return;
        const Range at = segment(count, each, s);
        void* const mine = data + at.begin * item;
        std::vector<const void*> from;
        for (int r = 0; r < size_; ++r) from.push_back(r == rank_ ? mine : place(s, r));
        local::reduce(dtype, op, from.data(), size_, &mine, 1, at.size());
      });
}

// Each rank reduces one part of each segment, and gives it to whoever gets the result. A part that
// comes back may overwrite what was sent: it is made from it.
void Collectives::scatter_and_return(CallKey key, DType dtype, RedOp op, char* data, size_t count,
                                     int root) {
  const size_t item = size_of(dtype), n = static_cast<size_t>(size_);
  const size_t each = std::max<size_t>(1, kSegmentBytes / 2 / item) * n;
  const bool gets = root == kEverybody || root == rank_;
  const size_t room = (std::min(count, each) / n + 1) * item;
  char* const stage = staging(2 * n * room);  // n - 1 parts of others, and the result
  auto place = [&](size_t s, size_t i) { return stage + (s % 2 * n + i) * room; };
  auto part = [&](size_t s, int r) {
    return part_of(segment(count, each, s), n, static_cast<size_t>(r));
  };
  Batch out[2] = {{messenger_, key}, {messenger_, key}},
        back[2] = {{messenger_, key}, {messenger_, key}};
  in_pairs(
      segments_of(count, each) + 1,
      [&](size_t s) {
        back[s % 2].wait();  // of the segment before the last: its result's place is free
        if (s == segments_of(count, each)) return;
        const size_t mine = part(s, rank_).size() * item;
        for (int i = 1; i < size_; ++i) {
          out[s % 2].recv(place(s, static_cast<size_t>(i - 1)), mine, peer(i));
          const Range theirs = part(s, peer(i));
          out[s % 2].send(data + theirs.begin * item, theirs.size() * item, peer(i));
        }
      },
      [&](size_t s) {
        if (s == segments_of(count, each)) return;
        out[s % 2].wait();
        const Range at = part(s, rank_);
        std::vector<const void*> from(n);
        from[static_cast<size_t>(rank_)] = data + at.begin * item;
        for (int i = 1; i < size_; ++i)
          from[static_cast<size_t>(peer(i))] = place(s, static_cast<size_t>(i - 1));
        // The others' tensors stay as they are.
        void* const result = gets ? data + at.begin * item : place(s, n - 1);
        local::reduce(dtype, op, from.data(), size_, &result, 1, at.size());
        for (int i = 1; i < size_; ++i) {
          const Range theirs = part(s, peer(i));
          if (gets) back[s % 2].recv(data + theirs.begin * item, theirs.size() * item, peer(i), 1);
          if (root == kEverybody || root == peer(i))
            back[s % 2].send(result, at.size() * item, peer(i), 1);
        }
      });
  for (Batch& batch : back) batch.wait();
}

void Collectives::reduce_scatter(CallKey key, DType dtype, RedOp op, void* out, const void* in,
                                 size_t count) {
  const size_t item = size_of(dtype), each = kSegmentBytes / 2 / item;
  const auto others = static_cast<size_t>(size_ - 1);
  const size_t room = std::min(count, each) * item;
  char* const stage = staging(2 * others * room);
  auto place = [&](size_t s, int r) {
    return stage + (s % 2 * others + static_cast<size_t>(r < rank_ ? r : r - 1)) * room;
  };
  auto part = [&](int r) {
    return static_cast<const char*>(in) + static_cast<size_t>(r) * count * item;
  };
  Batch batches[2] = {{messenger_, key}, {messenger_, key}};
  in_pairs(
      segments_of(count, each),
      [&](size_t s) {
        const Range at = segment(count, each, s);
        for (int i = 1; i < size_; ++i) {
          batches[s % 2].recv(place(s, peer(i)), at.size() * item, peer(i));
          batches[s % 2].send(part(peer(i)) + at.begin * item, at.size() * item, peer(i));
        }
      },
      [&](size_t s) {
        batches[s % 2].wait();
        const Range at = segment(count, each, s);
        std::vector<const void*> from;
        for (int r = 0; r < size_; ++r)
          from.push_back(r == rank_ ? part(r) + at.begin * item : place(s, r));
        void* const result = static_cast<char*>(out) + at.begin * item;
        local::reduce(dtype, op, from.data(), size_, &result, 1, at.size());
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
  for (int i = 1; i < size_; ++i) batch.recv(part(peer(i)), bytes, peer(i));
  for (int i = 1; i < size_; ++i) batch.send(in, bytes, peer(i));
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
    batch.recv(to + out_at[p], out_bytes[p], peer(i));
    batch.send(from + in_at[p], in_bytes[p], peer(i));
  }
  const auto me = static_cast<size_t>(rank_);
  if (in_bytes[me]) std::memmove(to + out_at[me], from + in_at[me], in_bytes[me]);
  batch.wait();
}

// In round k everybody tells the rank 2^k further on.
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
