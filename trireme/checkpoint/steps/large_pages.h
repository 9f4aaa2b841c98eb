// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "trireme/base/export.h"

namespace trireme {

/// Memory for a file's bytes on their way past the page cache, in large pages where the system has
/// them: a disk is then asked in fewer and larger requests (measured: twice as fast). It goes back
/// to the system, and leaves no hole in the heap.
class TRIREME_API LargePages {
 public:
  LargePages() = default;
  /// `size` is a multiple of 2 MiB. std::bad_alloc.
  explicit LargePages(size_t size);
  char* data() const { return memory_.get(); }
  explicit operator bool() const { return memory_ != nullptr; }

 private:
  struct Unmap {
    size_t size;
    void operator()(char* p) const;
  };
  std::unique_ptr<char, Unmap> memory_{nullptr, Unmap{0}};
};

}  // namespace trireme
