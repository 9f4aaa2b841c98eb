// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/offload/offload_params.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/base/trace.h"
#include "trireme/shard/offload/offload_plan.h"
#include "trireme/tensor/host_data.h"

namespace trireme {

struct OffloadPool::Impl {
  // A buffer is free, holds a tensor that is written, or one that is read ahead.
  struct Buffer {
    std::shared_ptr<void> memory;
    OffloadFile::Request request;
    ptrdiff_t tensor = -1;
    bool reading = false;
  };

  Impl(std::vector<Entry> e, const OffloadPoolOptions& o)
      : entries(std::move(e)), buffer_count(o.buffer_count) {
    check<UsageError>(o.buffer_count >= 2, "offload: buffer_count is {}: it must be 2 or more",
                      o.buffer_count);
    std::vector<int64_t> bytes;
    for (const Entry& entry : entries) bytes.push_back(bytes_of(entry));
    check<UsageError>(!bytes.empty(), "offload: a pool without tensors");
    places = plan_offsets(bytes, OffloadFile::kAlignment);
    file = std::make_unique<OffloadFile>(o.file, static_cast<uint64_t>(places.back()));
    for (size_t i = 0; i < entries.size(); ++i) largest = std::max(largest, padded(i));
    was_put.resize(entries.size());
    fit_buffers();
  }

  void add(Entry entry) {
    const int64_t end = plan_offsets({places.back() + bytes_of(entry)}, OffloadFile::kAlignment)[1];
    const auto size = static_cast<size_t>(end - places.back());
    file->grow(static_cast<uint64_t>(end));
    if (size > largest) {
      wait();
      for (Buffer& b : buffers) {
        if (b.reading) release(b);
        b.memory.reset();
      }
      largest = size;
    }
    entries.push_back(std::move(entry));
    was_put.push_back(false);
    places.push_back(end);
    fit_buffers();
  }

  static int64_t bytes_of(const Entry& entry) {
    check<UsageError>(entry.numel > 0, "offload: '{}' has {} elements", entry.name, entry.numel);
    return entry.numel * static_cast<int64_t>(c10::elementSize(entry.dtype));
  }
  void fit_buffers() {
    buffers.resize(std::min(static_cast<size_t>(buffer_count), 2 * entries.size()));
  }

  size_t padded(size_t i) const { return static_cast<size_t>(places[i + 1] - places[i]); }
  uint64_t place(size_t i) const { return static_cast<uint64_t>(places[i]); }
  size_t bytes(size_t i) const {
    return static_cast<size_t>(entries[i].numel) * c10::elementSize(entries[i].dtype);
  }

  void check_tensor(size_t i, const at::Tensor& t) const {
    const Entry& e = entries[i];
    check<UsageError>(t.defined() && t.is_cpu() && t.is_contiguous() && t.numel() == e.numel &&
                          t.scalar_type() == e.dtype,
                      "offload: '{}' is {} elements of {} in CPU memory, contiguous; the tensor "
                      "given is not",
                      e.name, e.numel, c10::toString(e.dtype));
  }

  void check_put(size_t i) const {
    check<UsageError>(was_put[i], "offload: '{}' is asked for before it was put", entries[i].name);
  }

  Buffer* reading(size_t i) {
    for (auto& b : buffers)
      if (b.reading && b.tensor == static_cast<ptrdiff_t>(i)) return &b;
    return nullptr;
  }
  void release(Buffer& b) {
    b.tensor = -1;
    b.reading = false;
    try {
      std::exchange(b.request, {}).wait();
    } catch (const Timeout&) {
      b.memory = offload_memory(largest);  // the kernel still has the other
      throw;
    }
  }
  /// A free one; else the one whose write began first; else null.
  Buffer* buffer() {
    for (auto& b : buffers)
      if (b.tensor < 0) {
        if (!b.memory) b.memory = offload_memory(largest);
        return &b;
      }
    if (writes.empty()) return nullptr;
    Buffer& oldest = buffers[writes.front()];
    writes.pop_front();
    release(oldest);
    return &oldest;
  }
  /// As above; gives up something that was read ahead, if it must.
  Buffer& any_buffer() {
    if (Buffer* b = buffer()) return *b;
    release(buffers.front());
    return buffers.front();
  }
  void read(Buffer& b, size_t i) {
    b.request = file->read(place(i), b.memory, padded(i));
    b.tensor = static_cast<ptrdiff_t>(i);
    b.reading = true;
  }

  void prefetch(size_t i) {
    check_put(i);
    if (reading(i)) return;
    if (Buffer* b = buffer()) read(*b, i);
  }

  void read_into(size_t i, const at::Tensor& into) {
    check_tensor(i, into);
    check_put(i);
    Buffer* b = reading(i);
    if (!b) {
      b = &any_buffer();
      read(*b, i);
    }
    Span span("offload", "wait for read");
    release(*b);
    std::memcpy(host_bits(into), b->memory.get(), bytes(i));
  }

  void put(size_t i, const at::Tensor& from, bool if_changed) {
    check_tensor(i, from);
    if (Buffer* stale = reading(i)) release(*stale);
    Buffer& b = any_buffer();
    char* const memory = static_cast<char*>(b.memory.get());
    std::memcpy(memory, host_bits(from), bytes(i));
    std::memset(memory + bytes(i), 0, padded(i) - bytes(i));  // checksums cover it
    if (if_changed && was_put[i]) {
      wait();
      if (file->holds(place(i), memory, padded(i))) return;
    }
    b.request = file->write(place(i), b.memory, padded(i));
    was_put[i] = true;
    b.tensor = static_cast<ptrdiff_t>(i);
    writes.push_back(static_cast<size_t>(&b - buffers.data()));
  }

  void wait() {
    while (!writes.empty()) {
      Buffer& oldest = buffers[writes.front()];
      writes.pop_front();
      release(oldest);
    }
  }

  std::vector<Entry> entries;
  std::vector<bool> was_put;
  std::vector<int64_t> places;  // in the file; the last is its end
  std::unique_ptr<OffloadFile> file;
  std::vector<Buffer> buffers;
  std::deque<size_t> writes;  // buffers, the oldest write first
  size_t largest = 0;         // bytes of a buffer
  int buffer_count;           // at most
};

const std::string& OffloadedTensor::name() const { return pool_->impl_->entries[index_].name; }
int64_t OffloadedTensor::numel() const { return pool_->impl_->entries[index_].numel; }
void OffloadedTensor::prefetch() { pool_->impl_->prefetch(index_); }
void OffloadedTensor::read_into(at::Tensor into) { pool_->impl_->read_into(index_, into); }
void OffloadedTensor::put(const at::Tensor& from) { pool_->impl_->put(index_, from, false); }
void OffloadedTensor::put_if_changed(const at::Tensor& from) {
  pool_->impl_->put(index_, from, true);
}
std::shared_ptr<const void> OffloadedTensor::view() const {
  OffloadPool::Impl& pool = *pool_->impl_;
  pool.check_put(index_);
  pool.wait();
  return pool.file->map(pool.place(index_), pool.padded(index_));
}

OffloadPool::OffloadPool(std::vector<Entry> entries, const OffloadPoolOptions& options)
    : impl_(std::make_unique<Impl>(std::move(entries), options)) {}
OffloadPool::~OffloadPool() = default;
size_t OffloadPool::size() const { return impl_->entries.size(); }
void OffloadPool::add(Entry entry) { impl_->add(std::move(entry)); }
void OffloadPool::wait() { impl_->wait(); }
int64_t OffloadPool::buffer_bytes() const {
  return static_cast<int64_t>(impl_->largest * impl_->buffers.size());
}
const OffloadFile& OffloadPool::file() const { return *impl_->file; }

}  // namespace trireme
