// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "trireme/base/output_file.h"

namespace trireme {

/// A thread that writes one piece while its user prepares the next; it begins with the first piece.
/// For one thread at a time.
class WriteBehind {
 public:
  WriteBehind() = default;
  /// Waits for the piece under way, and forgets its error.
  ~WriteBehind();
  WriteBehind(const WriteBehind&) = delete;

  /// Waits until the piece before is written, and throws its error. The file and the bytes stay as
  /// they are until wait(), or until the next call has returned.
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

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Piece> piece_;  // under way
  std::exception_ptr error_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace trireme
