// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <string>

#include "tests/support/pretend_device/kernels.h"

// LibTorch hears of the device's allocator and operators. Statically: who links this has it.
namespace trireme::pretend {
namespace {

torch::CppFunction by_the_cpu() { return torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>(); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(by_the_cpu()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  c10::SetAllocator(c10::kPrivateUse1, &device_allocator());
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_to_part);
  m.impl("set_.source_Storage", set_to_storage);
  m.impl("set_.source_Tensor", set_to_tensor);
  m.impl("set_", set_to_nothing);
  m.impl("copy_", copy_);
  m.impl("_to_copy", to_copy);
  m.impl("is_pinned", is_pinned);
  m.impl("_pin_memory", pin_memory);
  m.impl("record_stream", record_stream);
  // Views read no bytes: LibTorch's own.
  m.impl("view", at::native::view);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);

  // LibTorch chooses among kernels of devices that it knows: here, the CPU chooses.
  for (const char* whole : {"convolution", "convolution_backward"}) m.impl(whole, by_the_cpu());
  // What the CPU has a kernel for runs by that one, also where LibTorch would put it together from
  // others on a device that it does not know: the bits are the CPU's.
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (name.name.rfind("aten::", 0) == 0 && op &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1))
      m.impl(c10::toString(name).c_str(), by_the_cpu());
  }
}

}  // namespace
}  // namespace trireme::pretend
