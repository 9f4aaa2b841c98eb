// SPDX-License-Identifier: Apache-2.0
#include "trireme/shard/offload/offload_queue.h"

#include <fcntl.h>

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/base/failpoint.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/base/rank_label.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trireme::detail {
namespace {

const char* verb(bool write) { return write ? "write" : "read"; }

/// A cgroup pays for pages of the cache until they are dropped. Measured, 512 MiB written and read
/// in a group of 192 MiB on ext4: left alone, the cache fills the group and every page beyond has
/// to be reclaimed first (2,187 times at the limit); dropped behind each request, the group holds
/// the buffers and 8 MiB (never at the limit). O_DIRECT leaves no pages.
void drop_pages(int fd, const OffloadRequest& request) {
  const auto offset = static_cast<off64_t>(request.region->offset);
  const auto bytes = static_cast<off64_t>(request.region->bytes);
  constexpr unsigned kToDisk =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (request.write) ::sync_file_range(fd, offset, bytes, kToDisk);  // dirty pages do not go
  ::posix_fadvise(fd, offset, bytes, POSIX_FADV_DONTNEED);
}

}  // namespace

OffloadQueue::OffloadQueue(UniqueFd fd, std::unique_ptr<OffloadIo> io, Options options)
    : fd_(std::move(fd)),
      io_(std::move(io)),
      options_(std::move(options)),
      blocks_(static_cast<size_t>(io_->depth())) {
  for (auto& b : blocks_) idle_.push_back(&b);
  thread_ = quiet_thread([this] { run(); });
}

OffloadQueue::~OffloadQueue() {
  stop();
  thread_.join();
}

size_t OffloadQueue::block_bytes(const OffloadRegion& region, size_t block) const {
  return std::min(options_.block_size, region.bytes - block * options_.block_size);
}

uint64_t OffloadQueue::sum(const OffloadRegion& region, size_t block, const char* memory) const {
  const size_t at = block * options_.block_size;
  return XXH3_64bits_withSeed(memory + at, block_bytes(region, block), region.offset + at);
}

void OffloadQueue::post(std::shared_ptr<OffloadRequest> request) {
  {
    std::lock_guard lock(mutex_);
    if (broken_) std::rethrow_exception(broken_);
    queue_.push_back(std::move(request));
    ++unfinished_;
  }
  posted_.notify_one();
}

void OffloadQueue::wait(OffloadRequest& request, Duration timeout) {
  std::unique_lock lock(mutex_);
  const bool done = finished_.wait_for(lock, timeout, [&] { return request.done; });
  check<Timeout>(done,
                 "{}: {} of {} bytes did not end within {:.0f} s: the disk does not answer. Choose "
                 "another folder, or a longer timeout",
                 options_.path, verb(request.write), request.region->bytes,
                 std::chrono::duration<double>(timeout).count());
  if (request.error) std::rethrow_exception(request.error);
}

bool OffloadQueue::drain(Duration timeout) {
  std::unique_lock lock(mutex_);
  return finished_.wait_for(lock, timeout, [&] { return unfinished_ == 0; });
}

void OffloadQueue::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  posted_.notify_one();
}

void OffloadQueue::run() {
  set_thread_rank(options_.rank);
  try {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (active_.empty()) posted_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        active_.insert(active_.end(), queue_.begin(), queue_.end());
        queue_.clear();
        if (active_.empty()) return;
      }
      start_blocks();
      if (idle_.size() < blocks_.size()) {
        IoBlock* b = io_->wait();
        came_back(*reinterpret_cast<Moving*>(b));  // its first member
      }
      for (size_t i = 0; i < active_.size();) {
        OffloadRequest& r = *active_[i];
        if (r.moving > 0 || (!r.error && r.issued < blocks(*r.region))) {
          ++i;
          continue;
        }
        auto through = std::move(active_[i]);
        active_.erase(active_.begin() + static_cast<ptrdiff_t>(i));
        finish(std::move(through));
      }
    }
  } catch (...) {
    give_up(std::current_exception());
  }
}

// Two requests that touch the same bytes go in the order in which they were issued.
bool OffloadQueue::may_start(size_t i) const {
  const OffloadRegion& region = *active_[i]->region;
  return std::none_of(active_.begin(), active_.begin() + static_cast<ptrdiff_t>(i),
                      [&](const auto& earlier) {
                        const OffloadRegion& other = *earlier->region;
                        return other.offset < region.offset + region.bytes &&
                               region.offset < other.offset + other.bytes;
                      });
}

void OffloadQueue::start_blocks() {
  for (size_t i = 0; i < active_.size() && !idle_.empty(); ++i) {
    OffloadRequest& r = *active_[i];
    const size_t count = blocks(*r.region);
    if (r.issued == count || r.error) continue;
    if (r.issued == 0) {
      if (!may_start(i)) return;
      r.begin_ns = now_ns();
      if (r.write) {
        r.region->whole = false;
        r.region->sums.resize(count);
      } else if (!r.region->whole) {
        r.error = std::make_exception_ptr(ResourceError(
            fmt::format("{}: the {} bytes at {} cannot be read: writing them had failed",
                        options_.path, r.region->bytes, r.region->offset)));
        continue;
      }
    }
    while (r.issued < count && !r.error && !idle_.empty()) {
      Moving& m = *idle_.back();
      idle_.pop_back();
      m.request = &r;
      m.block = r.issued++;
      m.moved = 0;
      ++r.moving;
      if (r.write) r.region->sums[m.block] = sum(*r.region, m.block, r.memory.get());
      submit(m);
    }
  }
}

void OffloadQueue::submit(Moving& m) {
  OffloadRequest& r = *m.request;
  const size_t at = m.block * options_.block_size + m.moved;
  m.io = {r.write, r.region->offset + at, r.memory.get() + at,
          block_bytes(*r.region, m.block) - m.moved, 0};
  int pretend = 0;
  try {
    pretend = failpoint(r.write ? "offload.write" : "offload.read");
  } catch (...) {
    r.error = std::current_exception();
  }
  if (!pretend && !r.error) return io_->submit(&m.io);
  m.io.result = -pretend;
  came_back(m);
}

void OffloadQueue::came_back(Moving& m) {
  OffloadRequest& r = *m.request;
  const size_t left = m.io.bytes;
  if (!r.error && m.io.result < 0) {
    r.error = std::make_exception_ptr(ResourceError(fmt::format(
        "{}: cannot {} {} bytes at {}: {}. Free the disk or choose another folder", options_.path,
        verb(r.write), left, m.io.offset, errno_text(static_cast<int>(-m.io.result)))));
  } else if (!r.error && m.io.result == 0) {
    r.error = std::make_exception_ptr(Corrupt(fmt::format(
        "{}: ends at {}; it was made longer: was it truncated?", options_.path, m.io.offset)));
  } else if (!r.error && static_cast<size_t>(m.io.result) < left) {
    m.moved += static_cast<size_t>(m.io.result);
    return submit(m);
  }
  if (!r.error && !r.write) check_block(m);
  --r.moving;
  idle_.push_back(&m);
}

void OffloadQueue::check_block(const Moving& m) {
  OffloadRequest& r = *m.request;
  const uint64_t expected = r.region->sums[m.block];
  const uint64_t found = sum(*r.region, m.block, r.memory.get());
  if (found == expected) return;
  const uint64_t begin = r.region->offset + m.block * options_.block_size;
  r.error = std::make_exception_ptr(Corrupt(fmt::format(
      "{}: bytes {} to {} (of the region {} to {}) are not what was written there: checksum "
      "{:016x}, expected {:016x}. Continue from the last checkpoint, on another disk",
      options_.path, begin, begin + block_bytes(*r.region, m.block), r.region->offset,
      r.region->offset + r.region->bytes, found, expected)));
}

void OffloadQueue::finish(std::shared_ptr<OffloadRequest> request) {
  OffloadRequest& r = *request;
  if (!r.error && r.write) r.region->whole = true;
  if (!options_.direct) drop_pages(fd_.get(), r);
  if (r.sink && !r.error) {
    r.sink->span("offload", verb(r.write), r.begin_ns, now_ns());
    r.sink->counter(r.write ? "offload.bytes_written" : "offload.bytes_read",
                    static_cast<double>(r.region->bytes));
  }
  r.memory.reset();
  std::lock_guard lock(mutex_);
  r.done = true;
  --unfinished_;
  request.reset();  // so that whoever waits is the last to hold it, and its error
  finished_.notify_all();
}

// What is under way may still be written to by the kernel: its memory is never given back.
void OffloadQueue::give_up(std::exception_ptr why) {
  std::lock_guard lock(mutex_);
  broken_ = why;
  active_.insert(active_.end(), queue_.begin(), queue_.end());
  queue_.clear();
  for (auto& r : active_) {
    if (r->moving > 0) new std::shared_ptr<char>(r->memory);
    r->error = why;
    r->done = true;
  }
  active_.clear();
  unfinished_ = 0;
  finished_.notify_all();
}

}  // namespace trireme::detail
