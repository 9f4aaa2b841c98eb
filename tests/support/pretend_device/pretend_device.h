// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "tests/support/pretend_device/current.h"
#include "tests/support/pretend_device/device_memory.h"

// GPUs for tests, without a GPU: LibTorch's devices PrivateUse1:0 to 3 of this process. Their
// memory cannot be read or written by its address; their streams are threads that are late by a
// seed; their operators are the CPU's, with its bits. What they do not show: a GPU's rounding,
// speed, and kernels that are late (operators wait for their stream and run at once; copies,
// events, and the collectives of group.h are late).
namespace trireme::pretend {

c10::Device device(int index = 0);

/// All streams are idle, and from here on as late as the seed says. 0: never late.
void reseed(uint64_t seed);
/// body() under each of the seeds 1 to n, then with no delays again. What fails or throws is a
/// failure of the test, which names the seed.
void for_seeds(int n, const std::function<void()>& body);
/// All streams of all devices have done what they had to do. Not counted as a host wait.
void synchronize();

c10::Stream default_stream(int device = 0);
/// Of the device's pool of 8, in turn.
c10::Stream stream_from_pool(int device = 0);

/// Work of a test's own, a collective perhaps: late, in the stream's order, on one of its threads.
void launch(const c10::Stream& stream, std::function<void()> work);
/// What such work reads and writes: the bytes of a device's tensor as a tensor of the CPU. It does
/// not keep them, as no kernel does.
at::Tensor for_kernels(const at::Tensor& t);

/// A stream stands still between construction and release(), or the end of the scope.
class Hold {
 public:
  explicit Hold(const c10::Stream& stream);
  ~Hold();
  Hold(const Hold&) = delete;
  void release();

 private:
  std::shared_ptr<std::atomic<bool>> open_;
};

/// Since the process began.
struct Counters {
  uint64_t async_copies;   // non_blocking, of pinned memory: they were late
  uint64_t staged_copies;  // non_blocking was asked for, but the host's memory was not pinned
  uint64_t host_waits;     // a thread of the host blocked on a stream
  uint64_t operators;      // that ran by the CPU's kernel: what a GPU would have launched
};
Counters counters();
/// Operators that ran by the CPU's kernel so far, "aten::add.Tensor".
std::set<std::string> fallbacks();

/// In this scope no device has a kernel of the operator ("aten::gelu", whichever overload).
class Lacks {
 public:
  explicit Lacks(std::string op);
  ~Lacks();
  Lacks(const Lacks&) = delete;

 private:
  const std::string op_;
};

MemoryCounts memory_counts(int device = 0);
void reset_memory_peaks(int device = 0);
/// The device has so many bytes in this scope.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t bytes, int device = 0);
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;

 private:
  const int device_;
  const size_t before_;
};

/// A tensor of the CPU in pinned memory.
at::Tensor pinned(const at::Tensor& host);
size_t pinned_bytes();
/// The bytes of a device's tensor as they are now, whatever streams are about to do.
at::Tensor bytes_now(const at::Tensor& t);

}  // namespace trireme::pretend
