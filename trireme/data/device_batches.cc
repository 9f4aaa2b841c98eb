// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/device_batches.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace trireme {
namespace {

at::Tensor tensor_on(const at::Tensor& t, at::Device device) {
  if (!t.defined() || t.device() == device) return t;
  const auto options = t.options().device(device);
  if (!t.is_cpu()) return t.to(device);
  at::Tensor pinned = host_buffer(t.sizes(), t.scalar_type(), device);
  pinned.copy_(t);
  at::Tensor there = at::empty(t.sizes(), options);
  copy_in_stream_order(there, pinned);
  return there;
}

template <class F>
void for_each_tensor(const Batch& batch, const F& f) {
  for (const MicroBatch& micro : batch) {
    f(micro.input);
    f(micro.target);
    for (const auto& [name, t] : micro.more) f(t);
  }
}

}  // namespace

MicroBatch on_device(MicroBatch micro, at::Device device) {
  if (!is_asynchronous(device)) return micro;
  micro.input = tensor_on(micro.input, device);
  micro.target = tensor_on(micro.target, device);
  for (auto& [name, t] : micro.more) t = tensor_on(t, device);
  return micro;
}

Batch on_device(Batch batch, at::Device device) {
  if (is_asynchronous(device))
    for (MicroBatch& micro : batch) micro = on_device(std::move(micro), device);
  return batch;
}

bool is_on(const Batch& batch, at::Device device) {
  bool all = true;
  for_each_tensor(
      batch, [&](const at::Tensor& t) { all = all && (!t.defined() || t.device() == device); });
  return all;
}

DeviceBatches::DeviceBatches(at::Device device)
    : device_(device), stream_(DeviceStream::another(device)) {}

PrefetchingLoader::MakeBatch DeviceBatches::ahead(PrefetchingLoader::MakeBatch make) {
  return [this, make = std::move(make)](int64_t step) { return send(step, make(step)); };
}

Batch DeviceBatches::send(int64_t step, Batch batch) {
  const CurrentDevice current(device_);  // of this thread, which may be the loader's
  const StreamScope scope(stream_);
  Batch there;
  try {
    there = on_device(batch, device_);
  } catch (const c10::OutOfMemoryError&) {
    return batch;
  }
  std::lock_guard lock(mutex_);
  there_[step] = stream_.record();
  return there;
}

Batch DeviceBatches::arrived(int64_t step, Batch batch) {
  DeviceEvent there;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = there_.find(step); found != there_.end()) {
      there = found->second;
      there_.erase(found);
    }
  }
  const DeviceStream now = DeviceStream::current(device_);
  now.wait(there);
  for_each_tensor(batch, [&](const at::Tensor& t) { now.uses(t); });
  return on_device(std::move(batch), device_);
}

}  // namespace trireme
