# SPDX-License-Identifier: Apache-2.0
# Tests of what is for CUDA tensors: on GPUs where LibTorch sees some, else, with LibTorch 1.13, on what stands in for them (stand_in.h).
trireme_tests(gpu LIBS trireme_static)
if(NOT TRIREME_TORCH_DIR AND NOT TARGET torch_cuda AND Torch_VERSION VERSION_LESS 2)
  target_sources(test_gpu PRIVATE ${CMAKE_CURRENT_LIST_DIR}/stand_in.cc ${CMAKE_CURRENT_LIST_DIR}/stand_in_group.cc)
else()
  target_sources(test_gpu PRIVATE ${CMAKE_CURRENT_LIST_DIR}/no_stand_in.cc)
endif()
