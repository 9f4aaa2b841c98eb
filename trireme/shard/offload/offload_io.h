// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

// How blocks of an open file move: the one interface of io_uring (several in flight) and of
// pread/pwrite (one after the other). One thread uses it.
namespace trireme::detail {

struct IoBlock {
  bool write = false;
  uint64_t offset = 0;
  char* memory = nullptr;  // untouched by others until the block comes back
  size_t bytes = 0;
  int64_t result = 0;  // bytes moved, which may be fewer than asked for; or -errno
};

class OffloadIo {
 public:
  virtual ~OffloadIo() = default;
  virtual const char* name() const = 0;
  /// Most blocks between submit() and wait().
  virtual int depth() const = 0;
  virtual void submit(IoBlock* block) = 0;
  /// A block that is through, in any order; there must be one under way. Throws ResourceError when
  /// the kernel takes no more: blocks under way are then lost and may still be written to.
  virtual IoBlock* wait() = 0;
};

std::unique_ptr<OffloadIo> make_thread_io(int fd);
/// Null, and why: the kernel or the container's seccomp filter refuses io_uring, or it is not in
/// this build.
std::unique_ptr<OffloadIo> make_io_uring(int fd, int depth, std::string* why_not);

}  // namespace trireme::detail
