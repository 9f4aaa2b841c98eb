// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/export.h"

// The device that a rank computes on: which one, its streams, events, memory, and the host memory
// that its copies may use late. One code for all kinds: the CPU, CUDA, and others that LibTorch has
// been taught (PrivateUse1). Nothing else asks "is this CUDA".
//
// On the CPU everything is done when it returns: streams and events are of no effect there, so that
// callers need no second path.
namespace trireme {

/// The device that a configuration or a flag names, for the rank `local_rank` of its host:
///   "cpu"; "auto": cuda if this LibTorch sees a GPU, else the CPU; "cuda": the GPU with the
///   rank's number; "cuda:N": that one; "privateuseone", "privateuseone:N": a device that a
///   library added to LibTorch, in the same way.
/// Throws UsageError, in one sentence, for a device that is not there or has no such number.
TRIREME_API at::Device choose_device(const std::string& wanted, int local_rank);

/// Devices of that kind that this process sees; 1 for the CPU.
TRIREME_API int device_count(at::DeviceType type);
/// "cpu", "cuda:1".
TRIREME_API std::string device_text(at::Device device);
/// `device` with an index: the thread's current one, if it has none.
TRIREME_API at::Device with_index(at::Device device);
/// Work on it may be late, in the order of streams. False for the CPU.
inline bool is_asynchronous(at::Device device) { return device.type() != at::kCPU; }

/// Bytes of a device's memory; nullopt: the kind cannot tell.
struct DeviceMemoryUse {
  int64_t total = 0;           // of the device
  int64_t free = 0;            // of all processes on it
  int64_t allocated = 0;       // by tensors of this process
  int64_t reserved = 0;        // by this process's allocator, for tensors now or later
  int64_t peak_allocated = 0;  // since the process began or reset_peak_memory()
};
TRIREME_API std::optional<DeviceMemoryUse> memory_use(at::Device device);
TRIREME_API void reset_peak_memory(at::Device device);
/// Gives back what the allocator keeps for later tensors. Of no effect where there is no such.
TRIREME_API void release_cached_memory(at::Device device);

/// Makes a device the current one of this thread while it lives: a rank has one device, and what
/// is made without an index goes to it.
class TRIREME_API CurrentDevice {
 public:
  explicit CurrentDevice(at::Device device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;

 private:
  at::Device before_;
};

/// A place in a stream that others may wait for. A value; empty ones are reached.
class TRIREME_API DeviceEvent {
 public:
  DeviceEvent() = default;
  /// Asks the device, does not block.
  bool reached() const;
  /// Blocks this thread until the stream has come so far; false after the deadline. Not to be
  /// called in a gradient hook.
  bool wait_on_host(Deadline deadline = Deadline::never()) const;

 private:
  friend class DeviceStream;
  std::shared_ptr<c10::Event> event_;
};

/// A queue of work on a device. A value; the stream itself belongs to LibTorch.
class TRIREME_API DeviceStream {
 public:
  /// The one that this thread's operators go to.
  static DeviceStream current(at::Device device);
  /// Another one, of LibTorch's pool: for copies that run beside what is computed.
  static DeviceStream another(at::Device device);

  at::Device device() const { return device_; }
  /// The place behind what has been put in so far.
  DeviceEvent record() const;
  /// What is put in from now on runs after `event`. Does not block this thread.
  void wait(const DeviceEvent& event) const;
  /// The tensor's memory is not given to others until this stream has come so far as it is when the
  /// tensor is freed. For tensors that were made while another stream was current.
  void uses(const at::Tensor& t) const;
  /// Blocks this thread until all is done that was put in.
  void synchronize() const;

 private:
  friend class StreamScope;
  explicit DeviceStream(at::Device device) : device_(device) {}
  at::Device device_;
  std::optional<c10::Stream> stream_;  // none on the CPU
};

/// Makes a stream the current one of this thread and its device while it lives.
class TRIREME_API StreamScope {
 public:
  explicit StreamScope(const DeviceStream& stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;

 private:
  std::optional<c10::Stream> before_;
};

/// Host memory that copies from and to `partner` may use after they return; ordinary memory if
/// that is the CPU. Uninitialised, contiguous. Freed memory is not used again before such copies
/// are done.
TRIREME_API at::Tensor host_buffer(at::IntArrayRef sizes, at::ScalarType dtype, at::Device partner);

/// to.copy_(from) in the order of the current stream, without blocking where the host's side is a
/// host_buffer(). On the host, contents are there when an event recorded afterwards is reached.
TRIREME_API void copy_in_stream_order(const at::Tensor& to, const at::Tensor& from);

}  // namespace trireme
