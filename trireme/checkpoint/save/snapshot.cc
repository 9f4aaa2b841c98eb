// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save/snapshot.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/file/size_limit.h"
#include "trireme/comm/local/copy.h"
#include "trireme/comm/local/host/memory_room.h"
#include "trireme/tensor/device.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace trireme {
namespace {

constexpr size_t kPiece = size_t{1} << 20;  // what a thread copies at a time

struct CopyPiece {
  const uint8_t* from;
  uint8_t* to;
  size_t bytes;
};

void cut(const uint8_t* from, uint8_t* to, size_t bytes, std::vector<CopyPiece>* pieces) {
  for (size_t done = 0; done < bytes; done += kPiece)
    pieces->push_back({from + done, to + done, std::min(kPiece, bytes - done)});
}

void copy(const std::vector<CopyPiece>& pieces, bool streamed) {
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const CopyPiece& piece = pieces[static_cast<size_t>(i)];
      local::copy_block(piece.to, piece.from, piece.bytes, streamed);
    }
  });
}

/// Tensors of devices, through pinned memory: many copies are put in their streams before the first
/// is waited for.
class FromDevices {
 public:
  explicit FromDevices(bool streamed) : streamed_(streamed) {}
  void send(const at::Tensor& t, const PlannedWrite& w, uint8_t* to) {
    if (sent_.empty() || sent_.back().tensor != w.tensor) {
      if (bytes_ >= kPinned) arrive();
      const at::Tensor there = t.contiguous();
      const at::Tensor pinned = host_buffer(there.sizes(), there.scalar_type(), there.device());
      copy_in_stream_order(pinned, there);
      sent_.push_back({w.tensor, pinned, DeviceStream::current(t.device()).record(), {}});
      bytes_ += pinned.nbytes();
    }
    sent_.back().writes.push_back({w.from, to, static_cast<size_t>(w.bytes)});
  }
  /// Waits, and copies to where they belong.
  void arrive() {
    std::vector<CopyPiece> pieces;
    for (const Sent& sent : sent_) {
      sent.there.wait_on_host();
      const auto* begin = static_cast<const uint8_t*>(sent.pinned.data_ptr());
      for (const Write& w : sent.writes) cut(begin + w.from, w.to, w.bytes, &pieces);
    }
    copy(pieces, streamed_);
    sent_.clear();
    bytes_ = 0;
  }

 private:
  static constexpr size_t kPinned = size_t{256} << 20;  // … that many bytes of them
  struct Write {
    int64_t from;
    uint8_t* to;
    size_t bytes;
  };
  struct Sent {
    size_t tensor;
    at::Tensor pinned;
    DeviceEvent there;
    std::vector<Write> writes;
  };
  const bool streamed_;
  std::vector<Sent> sent_;
  size_t bytes_ = 0;
};

}  // namespace

SnapshotMemory::~SnapshotMemory() { release(); }

void SnapshotMemory::release() {
  if (begin_) ::munmap(begin_, bytes_);
  begin_ = nullptr, bytes_ = 0, plan_ = 0;
  fd_ = UniqueFd();
}

uint8_t* SnapshotMemory::reserve(size_t bytes, const std::function<void()>& gives_up) {
  if (bytes <= bytes_) return begin_;
  if (begin_ && gives_up) gives_up();
  release();
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t size = (bytes + page - 1) / page * page;
  auto refuse = [&] {
    fail<ResourceError>("a snapshot of {} bytes does not fit into this machine's memory: {}", size,
                        errno_text());
  };
  // Filling memory that is not there would end processes before fallocate() refuses.
  const local::Room room = local::memory_room();
  check<ResourceError>(
      size <= room.bytes,
      "a snapshot of {} bytes does not fit into the {} bytes of memory that are "
      "left ({}): save without AsyncSaver (checkpoint.async=false), or on more ranks",
      size, room.bytes, room.limit);
  check_file_size("a snapshot in memory", size);  // the kernel counts it as a file
  UniqueFd fd(::memfd_create("trireme-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) refuse();
  // With pages behind all of it: a write into a hole that cannot be filled would be a SIGBUS.
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) refuse();
  void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) refuse();
  fd_ = std::move(fd);
  begin_ = static_cast<uint8_t*>(mapped);
  bytes_ = size;
  // In large pages, if the machine gives them to who asks, and entered into this process's table of
  // pages: else each is a fault while training waits for the copy.
  ::madvise(mapped, size, MADV_HUGEPAGE);
  ::madvise(mapped, size, MADV_POPULATE_WRITE);
  if (::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size)) != 0 ||
      // The launcher seals it against writing, too, when this process is dead.
      ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    const int error = errno;
    release();
    errno = error;
    refuse();
  }
  return begin_;
}

void Snapshot::put_checksums(const std::vector<uint64_t>& checksums) const {
  trireme::put_checksums(begin_, layout_, checksums);
}

Snapshot Snapshot::take(const Collector& state, const WriteOrders& orders,
                        const SnapshotLabel& label, SnapshotMemory& memory) {
  Snapshot snapshot;
  snapshot.offsets_ = label.offsets();
  snapshot.layout_ = label.layout();
  snapshot.bytes_ = label.layout().size;
  snapshot.begin_ = memory.reserve(snapshot.bytes_);
  label.put_into(snapshot.begin_, memory.plan_);
  memory.plan_ = snapshot.layout_.plan_sum;
  uint8_t* const begin = snapshot.begin_ + snapshot.layout_.data_at;
  snapshot.data_ = begin;
  // What is written later need not be in the caches of who goes on training.
  const bool streamed = snapshot.layout_.data_bytes >= local::stream_from();
  FromDevices from_devices(streamed);
  std::vector<CopyPiece> pieces;
  const BytesOfWrite elsewhere = bytes_in(state, orders);
  for (size_t i = 0; i < orders.writes.size(); ++i) {
    const PlannedWrite& w = orders.writes[i];
    const at::Tensor& t = state.tensors[w.tensor];
    uint8_t* to = begin + snapshot.offsets_[i];
    if (is_asynchronous(t.device())) {
      from_devices.send(t, w, to);
      continue;
    }
    if (!t.is_contiguous()) {
      std::memcpy(to, elsewhere(i), static_cast<size_t>(w.bytes));
      continue;
    }
    const auto* from = static_cast<const uint8_t*>(t.data_ptr()) + w.from;
    cut(from, to, static_cast<size_t>(w.bytes), &pieces);
  }
  copy(pieces, streamed);
  from_devices.arrive();
  if (const int error = failpoint("checkpoint.snapshot"))
    fail<ResourceError>("a snapshot was not finished: {}", errno_text(error));
  mark_snapshot(snapshot.begin_, true);
  return snapshot;
}

}  // namespace trireme
