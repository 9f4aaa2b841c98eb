// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "trireme/base/export.h"
#include "trireme/data/batch.h"
#include "trireme/data/loader.h"
#include "trireme/tensor/device.h"

namespace trireme {

/// Copies of the tensors that are not on the device, made in the order of the current stream
/// through pinned memory: the host does not wait. What is there already, and everything if the
/// device is the CPU, is given back as it is.
TRIREME_API MicroBatch on_device(MicroBatch micro, at::Device device);
TRIREME_API Batch on_device(Batch batch, at::Device device);
TRIREME_API bool is_on(const Batch& batch, at::Device device);

/// Batches that are copied to a device as soon as they are prepared, on a stream of their own: with
/// a loader's background threads, while the device computes the steps before.
///
///   loader(batches->ahead(make)) … batches->arrived(step, loader.next())
///
/// Keeps the device's memory of as many batches as the loader prepares ahead. ahead() may be called
/// on any threads, arrived() on the one that computes.
class TRIREME_API DeviceBatches {
 public:
  explicit DeviceBatches(at::Device device);
  DeviceBatches(const DeviceBatches&) = delete;

  /// `make`, whose batches are then on their way to the device. One for which the device has no
  /// memory left stays on the CPU. This object must outlive it.
  PrefetchingLoader::MakeBatch ahead(PrefetchingLoader::MakeBatch make);
  /// The batch of a step that ahead() made, for the current stream, which waits for the copies; the
  /// host does not.
  Batch arrived(int64_t step, Batch batch);

 private:
  Batch send(int64_t step, Batch batch);
  const at::Device device_;
  const DeviceStream stream_;
  std::mutex mutex_;
  std::map<int64_t, DeviceEvent> there_;  // by step
};

}  // namespace trireme
