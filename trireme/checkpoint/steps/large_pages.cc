// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/large_pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace trireme {

LargePages::LargePages(size_t size) {
  constexpr size_t kLarge = size_t{2} << 20;
  void* const mapped =
      ::mmap(nullptr, size + kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  // What is before the first large page, and behind the last, goes.
  char* const begin = static_cast<char*>(mapped);
  const size_t before = (kLarge - reinterpret_cast<uintptr_t>(begin) % kLarge) % kLarge;
  if (before > 0) ::munmap(begin, before);
  if (before < kLarge) ::munmap(begin + before + size, kLarge - before);
  memory_ = {begin + before, Unmap{size}};
  ::madvise(begin + before, size, MADV_HUGEPAGE);  // a wish
}

void LargePages::Unmap::operator()(char* p) const { ::munmap(p, size); }

}  // namespace trireme
