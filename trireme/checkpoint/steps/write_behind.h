// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "trireme/base/output_file.h"

namespace trireme {

/// A thread that writes pieces in their order while its user prepares the next ones; it begins with
/// the first piece. One piece waits while another is written, so that the disk need not wait until
/// two threads have woken each other. For one thread at a time.
class WriteBehind {
 public:
  static constexpr size_t kPieces = 2;  // the one that is written, and the one that waits

  WriteBehind() = default;
  /// Waits for the pieces that are left, and forgets their errors.
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;

  /// Waits until fewer than kPieces are left, and throws the error of an earlier one, after which
  /// none was written. The file and the bytes stay as they are until wait(), or until kPieces more
  /// calls have returned.
  void write(OutputFile& file, uint64_t at, const void* bytes, size_t size);
  /// All is written; throws what went wrong.
  void wait();

 private:
  struct Piece {
    OutputFile* file;
    uint64_t at;
    const void* bytes;
    size_t size;
  };
  void run();
  void raise();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;  // the first one is under way
  std::exception_ptr error_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace trireme
