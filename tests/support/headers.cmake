# SPDX-License-Identifier: Apache-2.0
# LibTorch's headers, parsed once for all test programs that use them: a precompiled header, 10 s where each file would take 5.
# The public headers' own test (house/house.cmake) and the library itself do without: they must include what they use.
if(NOT TRIREME_TORCH)
  return()
endif()

# Not torch/torch.h: the templates that it leaves pending are instantiated anew in each file that uses it, precompiled or not.
add_library(test_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/headers.cc)
target_link_libraries(test_headers PRIVATE trireme_static test_options)
target_precompile_headers(test_headers PRIVATE <ATen/ATen.h> <torch/types.h> <torch/utils.h> <fmt/format.h> <gtest/gtest.h>)
# Position-independent as the programs are, or the compiler does not take it.
set_target_properties(test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_compile_options(test_headers PRIVATE -fPIE)

# What ccache must be told to keep what was compiled with a precompiled header.
function(trireme_test_launcher target)
  if("${CMAKE_CXX_COMPILER_LAUNCHER}" MATCHES "(^|/)ccache$")
    set_target_properties(${target} PROPERTIES
      CXX_COMPILER_LAUNCHER "env;CCACHE_SLOPPINESS=pch_defines,time_macros;${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()
trireme_test_launcher(test_headers)

function(trireme_test_headers target)
  target_precompile_headers(${target} REUSE_FROM test_headers)
  trireme_test_launcher(${target})
endfunction()

# Examples are programs that include <torch/torch.h>, as their reader's would: each takes 17 s to compile, 6 s with the header precompiled.
add_library(example_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/headers.cc)
target_link_libraries(example_headers PRIVATE trireme)
target_precompile_headers(example_headers PRIVATE <torch/torch.h>)
set_target_properties(example_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_compile_options(example_headers PRIVATE -fPIE)
trireme_test_launcher(example_headers)

# trireme_example(ddp_mlp ddp_mlp/ddp_mlp.cc): a program of examples/, against the library that users link.
function(trireme_example name source)
  add_executable(${name} ${PROJECT_SOURCE_DIR}/examples/${source})
  target_link_libraries(${name} PRIVATE trireme)
  target_precompile_headers(${name} REUSE_FROM example_headers)
  trireme_test_launcher(${name})
endfunction()
