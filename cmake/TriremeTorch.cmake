# SPDX-License-Identifier: Apache-2.0
# trireme_torch: LibTorch as one target, from find_package(Torch) (Debian's 1.13, or -DTorch_ROOT / CMAKE_PREFIX_PATH for a zip
# or wheel). The wheel's package file wants a whole CUDA toolkit; TRIREME_TORCH_DIR=DIR takes headers and libraries by hand.

add_library(trireme_torch INTERFACE)
set(TRIREME_TORCH_DIR "" CACHE PATH "A LibTorch folder (include/, lib/) to use without its CMake package")
if(TRIREME_TORCH_DIR)
  target_include_directories(trireme_torch SYSTEM INTERFACE ${TRIREME_TORCH_DIR}/include
                             ${TRIREME_TORCH_DIR}/include/torch/csrc/api/include)
  foreach(lib torch torch_cpu c10)
    target_link_libraries(trireme_torch INTERFACE ${TRIREME_TORCH_DIR}/lib/lib${lib}.so)
  endforeach()
  if(EXISTS ${TRIREME_TORCH_DIR}/lib/libtorch_cuda.so)
    # --no-as-needed: the CUDA kernels register themselves when the library is loaded; nothing refers to them.
    target_link_libraries(trireme_torch INTERFACE -Wl,--no-as-needed ${TRIREME_TORCH_DIR}/lib/libtorch_cuda.so
                          ${TRIREME_TORCH_DIR}/lib/libc10_cuda.so -Wl,--as-needed)
  endif()
  target_link_options(trireme_torch INTERFACE -Wl,-rpath,${TRIREME_TORCH_DIR}/lib)
  target_compile_definitions(trireme_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1 USE_DISTRIBUTED)
  message(STATUS "LibTorch: ${TRIREME_TORCH_DIR}")
else()
  find_package(Torch REQUIRED)
  target_link_libraries(trireme_torch INTERFACE torch)
  message(STATUS "LibTorch: ${Torch_VERSION} (${Torch_DIR})")
endif()
target_compile_definitions(trireme_torch INTERFACE AT_PER_OPERATOR_HEADERS)
# LibTorch 1.13's headers use std::vector of an IValue that is not complete yet; libstdc++ 12 under clang refuses that in C++20.
target_compile_options(trireme_torch INTERFACE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-include ATen/core/ivalue.h>")
