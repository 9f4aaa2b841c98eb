# SPDX-License-Identifier: Apache-2.0
# What the tests of the house as a whole need from CMake. Included by tests/CMakeLists.txt.

# examples/your_project is built by its test with this compiler, from the build tree and from an install tree.
set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/parity/your_project_test.cc APPEND PROPERTY COMPILE_DEFINITIONS
  TRIREME_CXX_COMPILER="${CMAKE_CXX_COMPILER}" TRIREME_CXX_LAUNCHER="${CMAKE_CXX_COMPILER_LAUNCHER}"
  TRIREME_PACKAGE_DIR="${CMAKE_INSTALL_LIBDIR}/cmake/trireme")

# Every public header (what trireme/trireme.h reaches) is compiled alone, twice over in one file: it includes what it
# uses and guards itself.
set(umbrella trireme/trireme.h)
if(TRIREME_TORCH AND EXISTS ${PROJECT_SOURCE_DIR}/${umbrella})
  set(public_headers ${umbrella})
  set(todo ${umbrella})
  while(todo)
    list(POP_FRONT todo header)
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include \"trireme/")
    foreach(line ${lines})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" found "${line}")
      if(NOT found IN_LIST public_headers AND EXISTS ${PROJECT_SOURCE_DIR}/${found})
        list(APPEND public_headers ${found})
        list(APPEND todo ${found})
      endif()
    endforeach()
  endwhile()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${umbrella})

  set(sources "")
  foreach(header ${public_headers})
    string(REGEX REPLACE "[/.]" "_" name "${header}")
    set(source ${CMAKE_CURRENT_BINARY_DIR}/public_headers/${name}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include <@header@>\n#include <@header@>\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  add_library(trireme_public_headers OBJECT ${sources})
  set_target_properties(trireme_public_headers PROPERTIES UNITY_BUILD OFF)
  # A build in groups is for who has little time: it parses LibTorch's headers once and proves our own includes alone.
  if(TRIREME_GROUPED)
    target_precompile_headers(trireme_public_headers PRIVATE <torch/types.h> <torch/nn/module.h> <torch/optim/optimizer.h>)
    trireme_test_launcher(trireme_public_headers)
  endif()
  # Against the library that users link: nothing of ours reaches them but what it exports.
  target_link_libraries(trireme_public_headers PRIVATE trireme)
  target_compile_options(trireme_public_headers PRIVATE -Wall -Wextra -O0 $<$<BOOL:${TRIREME_WERROR}>:-Werror>)
endif()
