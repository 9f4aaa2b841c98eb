// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/borrowed.h"

#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>
#include <utility>

#include "tests/support/pretend_device/current.h"
#include "tests/support/pretend_device/kernels.h"
#include "tests/support/pretend_device/machine.h"

namespace trireme::pretend {
namespace {

at::Tensor tensor_on(const c10::Storage& storage, c10::DispatchKeySet keys,
                     const at::Tensor& like) {
  at::Tensor t =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, like.dtype());
  t.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                 like.storage_offset());
  if (like.is_conj()) t._set_conj(true);
  if (like.is_neg()) t._set_neg(true);
  return t;
}

at::Tensor new_on_device(at::Tensor host, c10::Device device) {
  if (host._is_zerotensor()) host = at::zeros(host.sizes(), host.options());
  if (!host.is_non_overlapping_and_dense()) host = host.contiguous();
  at::Tensor fresh =
      empty_strided(host.sizes(), host.strides(), host.scalar_type(), {}, device, {});
  if (fresh.numel() > 0) {
    Machine& machine = Machine::of_process();
    machine.current_queue(device).drain();  // which may still have to poison the block
    std::memcpy(machine.mapping().for_kernels(fresh.data_ptr()), host.data_ptr(),
                static_cast<size_t>(host.numel()) * host.element_size());
  }
  if (host.is_conj()) fresh._set_conj(true);
  if (host.is_neg()) fresh._set_neg(true);
  return fresh;
}

}  // namespace

at::Tensor Borrowed::lend(const at::Tensor& device_tensor) {
  for (const Pair& known : tensors_)
    if (known.ours.is_same(device_tensor)) return known.lent;
  auto* ours = device_tensor.storage().unsafeGetStorageImpl();
  auto at = storages_.find(ours);
  if (at == storages_.end()) {
    void* bytes = Machine::of_process().mapping().for_kernels(ours->data_ptr().get());
    const c10::Storage lent(c10::Storage::use_byte_size_t(), ours->nbytes(),
                            c10::DataPtr(bytes, c10::Device(c10::kCPU)), c10::GetCPUAllocator(),
                            true);
    at = storages_.emplace(ours, Lent{device_tensor.storage(), lent, bytes}).first;
  }
  at::Tensor lent =
      tensor_on(at->second.lent, c10::DispatchKeySet(c10::DispatchKey::CPU), device_tensor);
  if (device_tensor.unsafeGetTensorImpl()->is_wrapped_number())
    lent.unsafeGetTensorImpl()->set_wrapped_number(true);
  tensors_.push_back({device_tensor, lent});
  return lent;
}

const Borrowed::Lent* Borrowed::storage_of(const at::Tensor& lent) const {
  if (!lent.has_storage()) return nullptr;
  for (const auto& [ours, entry] : storages_)
    if (entry.lent.unsafeGetStorageImpl() == lent.storage().unsafeGetStorageImpl()) return &entry;
  return nullptr;
}

at::Tensor Borrowed::take_back(const at::Tensor& result, c10::Device device) const {
  if (!result.defined()) return result;
  for (const Pair& known : tensors_)
    if (known.lent.is_same(result)) return known.ours;
  if (const Lent* of = storage_of(result))
    return tensor_on(of->ours, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), result);
  return new_on_device(result, device);
}

void Borrowed::keep_changes() const {
  for (const auto& [ours, entry] : storages_) {
    auto* lent = entry.lent.unsafeGetStorageImpl();
    if (lent->data_ptr().get() == entry.bytes) continue;
    const c10::DeviceGuard guard(ours->device());
    c10::DataPtr fresh = device_allocator().allocate(lent->nbytes());
    Machine& machine = Machine::of_process();
    machine.current_queue(ours->device()).drain();
    std::memcpy(machine.mapping().for_kernels(fresh.get()), lent->data_ptr().get(), lent->nbytes());
    ours->set_data_ptr_noswap(std::move(fresh));
    ours->set_nbytes(lent->nbytes());
  }
  for (const Pair& t : tensors_)
    if (t.ours.sizes() != t.lent.sizes() || t.ours.strides() != t.lent.strides() ||
        t.ours.storage_offset() != t.lent.storage_offset())
      t.ours.unsafeGetTensorImpl()->set_sizes_and_strides(t.lent.sizes(), t.lent.strides(),
                                                          t.lent.storage_offset());
}

}  // namespace trireme::pretend
