# SPDX-License-Identifier: Apache-2.0
# Whether this LibTorch has CUDA and CUDA's headers are there: tensor/device/cuda.cc or its no_cuda.cc twin is left out. Beside
# pip's torch the headers are in nvidia/, CUDA 13's in nvidia/cu13.
set(TRIREME_CUDA_BESIDE "")
set(folder ${PROJECT_SOURCE_DIR}/trireme/tensor/device)
if(TARGET torch_cuda OR EXISTS ${TRIREME_TORCH_DIR}/lib/libtorch_cuda.so)
  if(TRIREME_TORCH_DIR)
    file(GLOB TRIREME_CUDA_BESIDE ${TRIREME_TORCH_DIR}/../nvidia/*/include)
    file(GLOB libraries ${TRIREME_TORCH_DIR}/../nvidia/*/lib)
  endif()
  find_path(TRIREME_CUDA_INCLUDE cuda_runtime_api.h HINTS ${TRIREME_CUDA_BESIDE} PATHS /usr/local/cuda/include DOC "Where CUDA's headers are")
  find_library(TRIREME_CUDART NAMES cudart libcudart.so.13 libcudart.so.12 libcudart.so.11.0 HINTS ${libraries}
               PATHS /usr/local/cuda/lib64 DOC "CUDA's runtime library")
  if(NOT TRIREME_CUDA_INCLUDE OR NOT TRIREME_CUDART)
    message(WARNING "LibTorch has CUDA, but cuda_runtime_api.h or libcudart was not found: this build does not use GPUs. "
                    "-DTRIREME_CUDA_INCLUDE=DIR and -DTRIREME_CUDART=FILE say where they are")
  endif()
endif()
if(TRIREME_CUDA_INCLUDE AND TRIREME_CUDART)
  list(APPEND TRIREME_EXCLUDE_SOURCES ${folder}/no_cuda.cc)
  add_library(trireme_cuda INTERFACE)
  target_include_directories(trireme_cuda SYSTEM INTERFACE ${TRIREME_CUDA_INCLUDE})
  target_link_libraries(trireme_cuda INTERFACE ${TRIREME_CUDART})
  set(TRIREME_CUDA_LIBS trireme_cuda)
else()
  list(APPEND TRIREME_EXCLUDE_SOURCES ${folder}/cuda.cc)
endif()
