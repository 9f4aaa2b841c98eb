// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/fd.h"
#include "trireme/base/trace.h"
#include "trireme/shard/offload/offload_io.h"

// Inside shard: the thread that moves an offload file's requests, block by block, and checks them.
namespace trireme::detail {

/// A range of the file that is written and read as a whole.
struct OffloadRegion {
  uint64_t offset = 0;
  size_t bytes = 0;
  // By the queue's thread, while a request of this region is under way; else by nobody.
  std::vector<uint64_t> sums;  // one for each block
  bool whole = false;          // the last write came to its end
};

struct OffloadRequest {
  bool write = false;
  std::shared_ptr<OffloadRegion> region;
  std::shared_ptr<char> memory;
  TraceSink* sink = nullptr;  // of the thread that asked

  // By the queue's thread, until `done`.
  size_t issued = 0, moving = 0;  // blocks
  int64_t begin_ns = 0;
  std::exception_ptr error;
  bool done = false;  // under the queue's mutex
};

class OffloadQueue {
 public:
  struct Options {
    std::string path;  // for error texts
    size_t block_size;
    bool direct;  // false: pages of the cache are dropped behind each request
    int rank;     // of the thread's label
  };
  OffloadQueue(UniqueFd fd, std::unique_ptr<OffloadIo> io, Options options);
  ~OffloadQueue();  // the thread has ended: every request is done
  OffloadQueue(const OffloadQueue&) = delete;

  void post(std::shared_ptr<OffloadRequest> request);
  /// Throws what went wrong; Timeout.
  void wait(OffloadRequest& request, Duration timeout);
  /// Everything posted is done; false: not within `timeout`.
  bool drain(Duration timeout);
  /// After what was posted the thread ends. Never waits.
  void stop();

  int fd() const { return fd_.get(); }
  const OffloadIo& io() const { return *io_; }
  const Options& options() const { return options_; }
  size_t blocks(const OffloadRegion& region) const {
    return (region.bytes + options_.block_size - 1) / options_.block_size;
  }
  size_t block_bytes(const OffloadRegion& region, size_t block) const;
  /// Depends on the place too, so that blocks which changed places do not pass.
  uint64_t sum(const OffloadRegion& region, size_t block, const char* memory) const;

 private:
  struct Moving {
    IoBlock io;
    OffloadRequest* request = nullptr;
    size_t block = 0, moved = 0;
  };
  void run();
  void start_blocks();
  void submit(Moving& m);
  void came_back(Moving& m);
  void check_block(const Moving& m);
  void finish(std::shared_ptr<OffloadRequest> request);
  void give_up(std::exception_ptr why);
  bool may_start(size_t i) const;

  UniqueFd fd_;
  std::unique_ptr<OffloadIo> io_;
  Options options_;
  std::vector<Moving> blocks_;
  std::vector<Moving*> idle_;
  std::deque<std::shared_ptr<OffloadRequest>> active_;  // in order of issue; the thread's

  std::mutex mutex_;
  std::condition_variable posted_, finished_;
  std::deque<std::shared_ptr<OffloadRequest>> queue_;
  size_t unfinished_ = 0;
  bool stopping_ = false;
  std::exception_ptr broken_;  // the engine takes no more
  std::thread thread_;
};

}  // namespace trireme::detail
