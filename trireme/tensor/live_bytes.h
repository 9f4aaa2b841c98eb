// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DeviceType.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "trireme/base/export.h"

namespace trireme {

/// Counts the bytes of tensors that this thread allocates and frees while the object lives: what a
/// forward keeps for backward, what a step needs at most. All devices whose allocators report, by
/// LibTorch's own reports; memory from Group::empty() is not among them. In a scope of its own on
/// one thread, not in LibTorch's profiler; an inner one hides the outer.
class TRIREME_API LiveBytes {
 public:
  LiveBytes() : LiveBytes(std::nullopt) {}
  /// On devices of this kind alone.
  explicit LiveBytes(std::optional<at::DeviceType> only);
  ~LiveBytes();
  LiveBytes(const LiveBytes&) = delete;

  int64_t now() const;   // allocated minus freed since construction
  int64_t peak() const;  // the most that now() was, since construction or reset_peak()
  void reset_peak();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
