// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "trireme/base/fd.h"

namespace trireme::local {

/// A mapped memfd, sealed against resizing. It is unmapped when the object dies; the kernel frees
/// it with the last mapping, so nothing is left after a kill.
class Window {
 public:
  /// Creates, reserves and first-touches `bytes`. Throws ResourceError (no memory, or a limit).
  static Window create(size_t bytes, UniqueFd& fd_out);
  /// Maps a window that a peer made; `bytes` must be its true size.
  static Window map(const UniqueFd& fd, size_t bytes);
  Window() = default;
  Window(Window&& o) noexcept : base_(std::exchange(o.base_, nullptr)), bytes_(o.bytes_) {}
  Window& operator=(Window&& o) noexcept;
  ~Window();
  unsigned char* base() const { return base_; }
  size_t bytes() const { return bytes_; }

 private:
  unsigned char* base_ = nullptr;
  size_t bytes_ = 0;
};

/// The position of an address: window number and offset. Window numbers are never reused.
struct Place {
  uint32_t window;
  uint64_t offset;
};

/// The memory of one rank that peers can access. Growth adds a window; a freed block is kept for
/// the next allocation of its size and never returned to the system. Not thread-safe.
class Arena {
 public:
  /// Called with each new window, so that peers know it before a call publishes an address in it.
  using Announce = std::function<void(uint32_t window, const UniqueFd& fd, size_t bytes)>;
  explicit Arena(Announce announce) : announce_(std::move(announce)) {}

  void* allocate(
      size_t bytes);  // aligned to a page from 64 KiB up, else to 64 bytes; zeroed the first time
  void deallocate(void* p);
  /// Returns false if [p, p+bytes) is not within one window.
  bool find(const void* p, size_t bytes, Place& out) const;
  size_t window_bytes() const { return total_; }

 private:
  struct Owned {
    Window window;
    size_t used = 0;
  };
  void* carve(size_t bytes);

  Announce announce_;
  std::vector<Owned> windows_;
  std::map<void*, size_t> live_;
  std::multimap<size_t, void*> free_;
  size_t total_ = 0;
};

}  // namespace trireme::local
