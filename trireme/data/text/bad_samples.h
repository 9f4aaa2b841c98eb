// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/export.h"

namespace trireme {

enum class OnBadSample { stop, skip };

/// What becomes of samples that cannot be read. Which these are depends on the files alone, so all
/// ranks that read the same files skip the same ones.
class TRIREME_API BadSamples {
 public:
  explicit BadSamples(OnBadSample then) : then_(then) {}
  /// Throws it as Corrupt, or counts it.
  void found(const std::string& what);
  static constexpr size_t kShown = 8;  // of first()
  /// Those that an earlier reading left out, behind what there is.
  void add(int64_t count, const std::vector<std::string>& first);
  int64_t count() const { return count_; }
  /// Of the first few: "train.jsonl:7: …".
  const std::vector<std::string>& first() const { return first_; }

 private:
  OnBadSample then_;
  int64_t count_ = 0;
  std::vector<std::string> first_;
};

}  // namespace trireme
