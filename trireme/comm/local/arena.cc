// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/local/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "trireme/base/check.h"
#include "trireme/comm/local/control.h"

namespace trireme::local {

namespace {

/// What can still be had of this machine and of the cgroups this process is in.
size_t available_bytes() {
  size_t available = static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * kPage, kib = 0;
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;)
    if (word == "MemAvailable:" && info >> kib) available = kib << 10;
  std::ifstream self("/proc/self/cgroup");
  std::string path;
  for (std::string line; std::getline(self, line);)
    if (line.rfind("0::/", 0) == 0) path = line.substr(3);
  while (true) {
    std::ifstream limit("/sys/fs/cgroup" + path + "/memory.max"),
        current("/sys/fs/cgroup" + path + "/memory.current");
    size_t most = 0, now = 0;
    if (limit >> most && current >> now)
      available = std::min(available, most - std::min(most, now));
    const auto slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return available;
    path.resize(slash);
  }
}

// The kernel sets no limit to a memfd: asked for more than there is, it kills processes instead of
// refusing. Small requests are not worth the look.
void check_room(size_t bytes) {
  if (bytes < (size_t{64} << 20)) return;
  const size_t room = available_bytes();
  check<ResourceError>(bytes <= room,
                       "no memory for {} bytes of shared memory: {} are available. Free memory or "
                       "raise the limit",
                       bytes, room);
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
  check_room(bytes);
  UniqueFd fd(::memfd_create("trireme", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  check<ResourceError>(static_cast<bool>(fd), "cannot create shared memory: {}", errno_text());
  check<ResourceError>(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0,
                       "cannot size {} bytes of shared memory: {}", bytes, errno_text());
  // Reserved now, so that a lack of memory is an error here and not a SIGBUS in the middle of a
  // reduction.
  check<ResourceError>(
      ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0,
      "cannot reserve {} bytes of shared memory: {}. Free memory or raise the limit", bytes,
      errno_text());
  check<ResourceError>(
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0,
      "cannot seal shared memory: {}", errno_text());
  Window w = map(fd, bytes);
  fd_out = std::move(fd);
  return w;
}

Window Window::map(const UniqueFd& fd, size_t bytes) {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  check<ResourceError>(p != MAP_FAILED, "cannot map {} bytes of shared memory: {}", bytes,
                       errno_text());
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
  // A block up to a quarter larger is taken as it is.
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
