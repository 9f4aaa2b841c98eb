// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <vector>

#include "trireme/comm/backend.h"
#include "trireme/comm/wrappers/host_pool.h"
#include "trireme/tensor/device.h"

namespace trireme::detail {

/// The streams of one device on which copies run: one each way, so that a result need not wait for
/// the tensors of later calls, which wait for what computes them.
struct CopyStreams {
  explicit CopyStreams(at::Device device)
      : device(device), out(DeviceStream::another(device)), in(DeviceStream::another(device)) {}
  at::Device device;
  DeviceStream out, in;
};

/// A call that a StagedBackend has taken: its tensors, on a device and on the host, and how far it
/// has come. Calls on the CPU's tensors that came behind one are kept as they are.
class StagedCall {
 public:
  /// Begins the copies to the host. `streams`: null for a call on the CPU's tensors.
  StagedCall(uint64_t number, const Call& call, int rank, CopyStreams* streams, HostPool& pool);
  StagedCall(const StagedCall&) = delete;
  ~StagedCall();

  enum class State : uint8_t { copying, posted, back };
  State state = State::copying;
  const uint64_t number;
  std::exception_ptr error;    // of this call alone
  std::function<void()> done;  // what when_complete() was given
  Token token;                 // of the inner backend, once posted

  bool on_device() const { return streams_ != nullptr; }
  /// What the inner backend gets has come to the host.
  bool is_here() const { return here_.reached(); }
  const Call& call() const { return call_; }
  /// Begins the copies back. The inner call is complete.
  void copy_back();
  /// The current stream goes on behind the result; then what when_complete() was given runs.
  void order_current_stream();
  /// Nobody needs to be ordered behind it any more.
  bool is_over() const { return state == State::back && !done && back_.reached(); }
  bool is_back() const { return state == State::back && back_.reached(); }

 private:
  at::Tensor to_host(const at::Tensor& t, bool copied);

  Call call_;
  CopyStreams* const streams_;
  HostPool& pool_;
  const DeviceStream issued_on_;
  at::Tensor input_, output_;            // the program's
  at::Tensor input_here_, output_here_;  // the inner backend's
  std::vector<int64_t> input_counts_, output_counts_;
  bool returns_ = false;  // output_ gets a result
  DeviceEvent issued_, here_, back_;
};

}  // namespace trireme::detail
