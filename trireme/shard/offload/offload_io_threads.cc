// SPDX-License-Identifier: Apache-2.0
#include <cerrno>

#include "trireme/base/file/file_calls.h"
#include "trireme/shard/offload/offload_io.h"

namespace trireme::detail {
namespace {

// The queue's thread is the worker: it sits in the system call itself.
class ThreadIo final : public OffloadIo {
 public:
  explicit ThreadIo(int fd) : fd_(fd) {}
  const char* name() const override { return "threads"; }
  int depth() const override { return 1; }
  void submit(IoBlock* block) override { block_ = block; }
  IoBlock* wait() override {
    IoBlock& b = *block_;
    const auto offset = static_cast<off_t>(b.offset);
    do {
      b.result = b.write ? file_calls::pwrite(fd_, b.memory, b.bytes, offset)
                         : file_calls::pread(fd_, b.memory, b.bytes, offset);
    } while (b.result < 0 && errno == EINTR);
    if (b.result < 0) b.result = -errno;
    return block_;
  }

 private:
  int fd_;
  IoBlock* block_ = nullptr;
};

}  // namespace

std::unique_ptr<OffloadIo> make_thread_io(int fd) { return std::make_unique<ThreadIo>(fd); }

}  // namespace trireme::detail
