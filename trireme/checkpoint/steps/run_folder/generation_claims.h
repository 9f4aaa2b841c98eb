// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "trireme/base/export.h"

// Which start of a job's workers may still publish. Where hosts of a job are cut off from each
// other, two parts of it may run for a while: the one that goes on claims, in the run folder or
// another file system that both see, that it follows the last generation of both.
namespace trireme {

/// Files PATH.<n>, each made once by one process: what it says follows generation n, which is over.
class TRIREME_API GenerationClaims {
 public:
  static constexpr size_t kLongest = 4096;  // of a text

  explicit GenerationClaims(std::string path) : path_(std::move(path)) {}

  /// The text of the claim on `number` after it: ours, or who was first. Makes the folder where it
  /// is missing, and removes claims on generations long over. ResourceError.
  std::string claim(int64_t number, const std::string& text) const;
  /// The newest generation that is over; -1: none. ResourceError.
  int64_t newest() const;

 private:
  std::string file(int64_t number) const { return path_ + "." + std::to_string(number); }

  const std::string path_;
};

/// What a saver must know of that.
struct TRIREME_API GenerationFence {
  static constexpr const char* kNumberVariable = "TRIREME_GENERATION";
  static constexpr const char* kPathVariable = "TRIREME_CLAIMS";

  std::string path = {};  // of the claims; "": there are none
  int64_t number = 0;     // the saver's generation

  /// What a launcher says to its workers; none where it says nothing. UsageError: no number.
  static GenerationFence of_environment();
  /// ResourceError where this generation is over, or that cannot be looked up.
  void check() const;
};

}  // namespace trireme
