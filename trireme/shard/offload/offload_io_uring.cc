// SPDX-License-Identifier: Apache-2.0
#include <liburing.h>

#include <cerrno>
#include <map>
#include <memory>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/file/file_calls.h"
#include "trireme/shard/offload/offload_io.h"

namespace trireme::detail {
namespace {

class UringIo final : public OffloadIo {
 public:
  UringIo(int fd, int depth, io_uring ring) : fd_(fd), depth_(depth), ring_(ring) {}
  ~UringIo() override { ::io_uring_queue_exit(&ring_); }
  const char* name() const override { return "io_uring"; }
  int depth() const override { return depth_; }

  void submit(IoBlock* b) override {
    size_t size = b->bytes;
    if (auto visit =
            file_calls::before({.kind = b->write ? FileCallKind::pwrite : FileCallKind::pread,
                                .fd = fd_,
                                .bytes = b->write ? b->memory : nullptr,
                                .size = size,
                                .offset = static_cast<int64_t>(b->offset)})) {
      size = visit->size();
      visits_[b] = std::move(visit);
    }
    if (const auto visit = visits_.find(b); visit != visits_.end() && visit->second->error())
      return;
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);  // the ring has `depth` of them
    check<ResourceError>(entry != nullptr, "io_uring: more than {} blocks in flight", depth_);
    const auto bytes = static_cast<unsigned>(size);
    if (b->write)
      ::io_uring_prep_write(entry, fd_, b->memory, bytes, b->offset);
    else
      ::io_uring_prep_read(entry, fd_, b->memory, bytes, b->offset);
    ::io_uring_sqe_set_data(entry, b);
  }

  IoBlock* wait() override {
    for (auto& [b, visit] : visits_)  // those that never reached the kernel
      if (visit->error()) {
        b->result = -visit->error();
        return came_back(b);
      }
    io_uring_cqe* done = nullptr;
    for (;;) {
      const int n = ::io_uring_submit_and_wait(&ring_, 1);
      // EAGAIN, EBUSY: the kernel is short of memory for requests just now.
      check<ResourceError>(n >= 0 || n == -EINTR || n == -EAGAIN || n == -EBUSY,
                           "io_uring takes no more requests: {}", errno_text(-n));
      if (::io_uring_peek_cqe(&ring_, &done) == 0) break;
      std::this_thread::yield();
    }
    auto* b = static_cast<IoBlock*>(::io_uring_cqe_get_data(done));
    b->result = done->res;
    ::io_uring_cqe_seen(&ring_, done);
    return came_back(b);
  }

 private:
  IoBlock* came_back(IoBlock* b) {
    if (visits_.empty()) return b;
    if (const auto visit = visits_.find(b); visit != visits_.end()) {
      visit->second->done(b->result);
      visits_.erase(visit);
    }
    return b;
  }

  int fd_, depth_;
  io_uring ring_;
  std::map<IoBlock*, std::unique_ptr<trireme::detail::FileVisit>> visits_;  // empty but for tests
};

bool reads_and_writes(io_uring& ring) {
  io_uring_probe* probe = ::io_uring_get_probe_ring(&ring);
  if (!probe) return false;  // before Linux 5.6, which also lacks these two
  const bool both = ::io_uring_opcode_supported(probe, IORING_OP_READ) &&
                    ::io_uring_opcode_supported(probe, IORING_OP_WRITE);
  ::io_uring_free_probe(probe);
  return both;
}

}  // namespace

std::unique_ptr<OffloadIo> make_io_uring(int fd, int depth, std::string* why_not) {
  io_uring ring{};
  const int error = ::io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0);
  if (error) {
    *why_not = "io_uring_setup: " + errno_text(-error);
    return nullptr;
  }
  if (!reads_and_writes(ring)) {
    ::io_uring_queue_exit(&ring);
    *why_not = "this kernel's io_uring is older than Linux 5.6's";
    return nullptr;
  }
  return std::make_unique<UringIo>(fd, depth, ring);
}

}  // namespace trireme::detail
