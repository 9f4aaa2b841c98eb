// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/fd.h"

namespace trireme {

/// Who makes which part of a folder: a lock for each number, in one file. A holder that dies lets
/// go. Threads and processes exclude each other. Where the file system has no locks everybody gets
/// them: then parts are made twice, and appear whole all the same.
class PartLocks {
 public:
  /// Makes the file. ResourceError where it cannot be made.
  explicit PartLocks(const std::string& path);

  class Held {
   public:
    Held(Held&& other) noexcept;
    ~Held();
    /// Nobody else has this one: false where there are no locks.
    bool excludes() const { return excludes_; }

   private:
    friend class PartLocks;
    Held(int fd, uint64_t number, bool excludes) : fd_(fd), number_(number), excludes_(excludes) {}
    int fd_;
    uint64_t number_;
    bool excludes_;
  };
  enum class Wait { no, until_free };
  /// Nothing, without waiting: somebody else has it.
  std::optional<Held> take(uint64_t number, Wait wait) const;

 private:
  UniqueFd fd_;
};

}  // namespace trireme
