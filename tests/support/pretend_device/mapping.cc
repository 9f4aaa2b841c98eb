// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/mapping.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

namespace trireme::pretend {

Mapping::Mapping() {
  const int file = ::memfd_create("pretend device", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0 && ::ftruncate(file, kBytes) == 0, "no memory file for pretend devices");
  void* tensors = ::mmap(nullptr, kBytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
  void* kernels =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  ::close(file);
  TORCH_CHECK(tensors != MAP_FAILED && kernels != MAP_FAILED,
              "pretend devices want 2 x 8 GiB of addresses: see 'ulimit -v'");
  tensors_ = static_cast<char*>(tensors);
  kernels_ = static_cast<char*>(kernels);
}

int Mapping::device_of(const void* p) const {
  TORCH_CHECK(holds(p), "a pointer that no pretend device has");
  return static_cast<int>((static_cast<const char*>(p) - tensors_) /
                          static_cast<ptrdiff_t>(kBytesPerDevice));
}

void* Mapping::for_kernels(const void* p) const {
  if (!p) return nullptr;
  TORCH_CHECK(holds(p),
              "an illegal memory access was encountered: no pretend device has this "
              "pointer");
  return kernels_ + (static_cast<const char*>(p) - tensors_);
}

}  // namespace trireme::pretend
