// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "trireme/base/check.h"
#include "trireme/base/file/size_limit.h"
#include "trireme/comm/local/control.h"
#include "trireme/comm/local/host/memory_room.h"
#include "trireme/comm/local/refused.h"

namespace trireme::local {

namespace {

// For page tables that map a window, and for what processes allocate meanwhile.
constexpr size_t kMargin = 4 << 20;

/// Reserves and fills the file. The kernel does not limit a memfd: if more is requested than there
/// is, it kills processes instead of refusing. So the available memory is checked first; and since
/// the other ranks may be requesting the same now, none takes more than its share of it without
/// checking again.
void reserve(int fd, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const Room room = memory_room();
    check<ResourceError>(
        bytes - at + kMargin <= room.bytes,
        "no memory for {} bytes of shared memory: {} of them are missing ({}; {} are free). Free "
        "memory, raise the limit, or share less",
        bytes, bytes - at + kMargin - room.bytes, room.limit, room.bytes);
    const size_t share = round_up(std::max<size_t>(room.bytes / kMaxRanks, 256 << 10), kPage);
    const size_t n = std::min(share, bytes - at);
    if (::fallocate(fd, 0, static_cast<off_t>(at), static_cast<off_t>(n)) != 0)
      fail<ResourceError>(
          "cannot reserve {} bytes of shared memory: {}. Free memory or raise the limit", bytes,
          errno_text());
    at += n;
  }
}

}  // namespace

Window& Window::operator=(Window&& o) noexcept {
  if (this != &o) {
    if (base_) ::munmap(base_, bytes_);
    base_ = std::exchange(o.base_, nullptr);
    bytes_ = o.bytes_;
  }
  return *this;
}

Window::~Window() {
  if (base_) ::munmap(base_, bytes_);
}

Window Window::create(size_t bytes, UniqueFd& fd_out) {
  bytes = round_up(bytes, kPage);
  UniqueFd fd(::memfd_create("trireme", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) refused("cannot create shared memory", "memfd_create");
  check_file_size("shared memory of ranks", bytes);  // the kernel counts it as a file
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    refused(fmt::format("cannot size {} bytes of shared memory", bytes), "ftruncate");
  // Reserved now, so that a lack of memory is an error here and not a SIGBUS in the middle of a
  // reduction.
  reserve(fd.get(), bytes);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    refused("cannot seal shared memory", "fcntl");
  Window w = map(fd, bytes);
  fd_out = std::move(fd);
  return w;
}

Window Window::map(const UniqueFd& fd, size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (p == MAP_FAILED) refused(fmt::format("cannot map {} bytes of shared memory", bytes), "mmap");
  Window w;
  w.base_ = static_cast<unsigned char*>(p);
  w.bytes_ = bytes;
  return w;
}

void* Arena::carve(size_t bytes) {
  const size_t align = bytes >= (64 << 10) ? kPage : 64;
  if (bytes < (1 << 20)) {  // small blocks share windows
    for (auto& owned : windows_) {
      size_t at = round_up(owned.used, align);
      if (at + bytes <= owned.window.bytes()) {
        owned.used = at + bytes;
        return owned.window.base() + at;
      }
    }
  }
  const size_t window_bytes = bytes < (1 << 20) ? size_t{4} << 20 : round_up(bytes, kPage);
  UniqueFd fd;
  Window w = Window::create(window_bytes, fd);
  windows_.reserve(windows_.size() + 1);  // after the announcement nothing may fail
  announce_(static_cast<uint32_t>(windows_.size()), fd, w.bytes());
  total_ += w.bytes();
  windows_.push_back({std::move(w), bytes});
  return windows_.back().window.base();
}

void* Arena::allocate(size_t bytes) {
  check<ResourceError>(bytes <= (size_t{1} << 48), "cannot allocate {} bytes", bytes);
  bytes = round_up(bytes ? bytes : 1, bytes >= (64 << 10) ? kPage : 64);
  auto reusable = free_.lower_bound(bytes);
  // A block that is up to a quarter larger is reused whole.
  if (reusable != free_.end() && reusable->first <= bytes + bytes / 4) {
    auto [size, p] = *reusable;
    free_.erase(reusable);
    live_[p] = size;
    return p;
  }
  void* p = carve(bytes);
  live_[p] = bytes;
  return p;
}

void Arena::deallocate(void* p) {
  auto it = live_.find(p);
  if (it == live_.end()) return;
  free_.emplace(it->second, p);
  live_.erase(it);
}

bool Arena::find(const void* p, size_t bytes, Place& out) const {
  auto at = reinterpret_cast<uintptr_t>(p);
  for (uint32_t i = 0; i < windows_.size(); ++i) {
    auto base = reinterpret_cast<uintptr_t>(windows_[i].window.base());
    if (at >= base && at + bytes <= base + windows_[i].window.bytes()) {
      out = {i, at - base};
      return true;
    }
  }
  return false;
}

}  // namespace trireme::local
