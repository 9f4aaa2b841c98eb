// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/checkpoint/steps/large_pages.h"
#include "trireme/checkpoint/steps/part_source.h"

namespace trireme {

/// Bytes that lie together in a file.
struct FileWindow {
  const PartSource* file;
  uint64_t begin, size;
};

/// Reads large windows of files, past the page cache where that does not have them, some ahead of
/// who takes them: the disk has always something to do, and the memory through which they pass
/// stays the same. Takes 12 MiB and two threads, from the first next() on.
class TRIREME_API WindowReader {
 public:
  static constexpr uint64_t kWindow = uint64_t{4} << 20;  // to whole pages; none is longer

  /// The files must outlive it.
  explicit WindowReader(std::vector<FileWindow> windows) : windows_(std::move(windows)) {}
  /// Waits for what is being read.
  ~WindowReader();
  WindowReader(const WindowReader&) = delete;

  /// The bytes of the next window, valid until the next call. As often as there are windows, by one
  /// thread. Throws what went wrong when it was read; the first call std::bad_alloc, and
  /// std::system_error where no thread starts.
  std::span<const uint8_t> next();

 private:
  struct Slot {
    LargePages memory;
    bool full = false;
    std::exception_ptr error;
  };
  void run();
  void read(const FileWindow& window, Slot& slot) const;
  Slot& slot_of(size_t window) { return slots_[window % slots_.size()]; }

  const std::vector<FileWindow> windows_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Slot, 3> slots_;
  size_t taken_ = 0, begun_ = 0;  // windows
  bool ends_ = false;
  std::array<std::thread, 2> threads_;
};

}  // namespace trireme
