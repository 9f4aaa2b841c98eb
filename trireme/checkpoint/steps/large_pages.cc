// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/large_pages.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace trireme {

LargePages::LargePages(size_t size)
    : memory_(static_cast<char*>(std::aligned_alloc(size_t{2} << 20, size))) {
  if (!memory_) throw std::bad_alloc();
  ::madvise(memory_.get(), size, MADV_HUGEPAGE);  // a wish
}

void LargePages::Free::operator()(char* p) const { std::free(p); }

}  // namespace trireme
