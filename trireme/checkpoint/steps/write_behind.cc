// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/steps/write_behind.h"

#include <utility>

#include "trireme/base/process/quiet_thread.h"
#include "trireme/base/rank_label.h"

namespace trireme {

WriteBehind::~WriteBehind() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void WriteBehind::write(OutputFile& file, uint64_t at, const void* bytes, size_t size) {
  if (!thread_.joinable()) {
    thread_ = quiet_thread([this, label = thread_rank()] {
      set_thread_rank(label);
      run();
    });
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pieces_.size() < kPieces; });
  raise();
  pieces_.push_back({&file, at, bytes, size});
  changed_.notify_all();
}

void WriteBehind::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pieces_.empty(); });
  raise();
}

void WriteBehind::raise() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void WriteBehind::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !pieces_.empty() || ends_; });
    if (pieces_.empty()) return;
    const Piece piece = pieces_.front();
    lock.unlock();
    std::exception_ptr error;
    try {
      piece.file->write_at(piece.at, piece.bytes, piece.size);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
      pieces_.clear();
    } else {
      pieces_.pop_front();
    }
    changed_.notify_all();
  }
}

}  // namespace trireme
