// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <c10/core/Allocator.h>

namespace trireme::pretend {

c10::Allocator& device_allocator();
at::Tensor for_kernels(const at::Tensor& t);  // pretend_device.h
inline bool is_ours(const at::Tensor& t) { return t.device().type() == c10::kPrivateUse1; }

// The kernels of the PrivateUse1 key, as LibTorch declares them (kernels of the CPU are not).
at::Tensor empty(at::IntArrayRef sizes, c10::optional<at::ScalarType> dtype,
                 c10::optional<at::Layout> layout, c10::optional<at::Device> device,
                 c10::optional<bool> pin, c10::optional<at::MemoryFormat> format);
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         c10::optional<at::ScalarType> dtype, c10::optional<at::Layout> layout,
                         c10::optional<at::Device> device, c10::optional<bool> pin);

at::Tensor& copy_(at::Tensor& self, const at::Tensor& src, bool non_blocking);
at::Tensor to_copy(const at::Tensor& self, c10::optional<at::ScalarType> dtype,
                   c10::optional<at::Layout> layout, c10::optional<at::Device> device,
                   c10::optional<bool> pin, bool non_blocking,
                   c10::optional<at::MemoryFormat> format);
bool is_pinned(const at::Tensor& self, c10::optional<at::Device> device);
at::Tensor pin_memory(const at::Tensor& self, c10::optional<at::Device> device);
void record_stream(at::Tensor& self, at::Stream s);

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          c10::optional<at::MemoryFormat> format);
at::Tensor& set_to_part(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides);
at::Tensor& set_to_storage(at::Tensor& self, at::Storage source);
at::Tensor& set_to_tensor(at::Tensor& self, const at::Tensor& source);
at::Tensor& set_to_nothing(at::Tensor& self);

/// Runs an operator by the CPU's kernel.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace trireme::pretend
