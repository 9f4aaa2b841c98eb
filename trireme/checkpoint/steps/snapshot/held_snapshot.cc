// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/snapshot/held_snapshot.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "trireme/base/check.h"
#include "trireme/base/process/descriptor_socket.h"

namespace trireme {

std::unique_ptr<const HeldSnapshot> HeldSnapshot::open(int fd) {
  const std::string fault = fault_in_memory(fd);
  check<Corrupt>(fault.empty(), "what a worker handed over {}", fault);
  struct stat info {};
  ::fstat(fd, &info);
  if (info.st_size == 0) return nullptr;
  const auto size = static_cast<size_t>(info.st_size);
  // Private, as nothing is written: a shared mapping is one that might be, which keeps memory from
  // being sealed, and which older kernels refuse of memory that is.
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  check<ResourceError>(mapped != MAP_FAILED, "cannot map a snapshot of {} bytes: {}", size,
                       errno_text());
  std::unique_ptr<HeldSnapshot> held(new HeldSnapshot(static_cast<const uint8_t*>(mapped), size));
  auto parsed = parse_snapshot({held->begin_, size});
  if (!parsed) return nullptr;
  held->parsed_ = std::move(*parsed);
  return held;
}

HeldSnapshot::~HeldSnapshot() { ::munmap(const_cast<uint8_t*>(begin_), size_); }

uint64_t HeldSnapshot::checksum(size_t i) const {
  uint64_t sum;
  std::memcpy(&sum, begin_ + parsed_.layout.sums_at + 8 * i, sizeof sum);
  return sum;
}

}  // namespace trireme
