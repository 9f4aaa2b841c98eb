# SPDX-License-Identifier: Apache-2.0
# What the tests of the house as a whole need from CMake. Included by tests/CMakeLists.txt.

# examples/your_project is built by its test with this compiler, from the build tree and from an install tree.
set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/parity/your_project_test.cc APPEND PROPERTY COMPILE_DEFINITIONS
  TRIREME_CXX_COMPILER="${CMAKE_CXX_COMPILER}" TRIREME_CXX_LAUNCHER="${CMAKE_CXX_COMPILER_LAUNCHER}"
  TRIREME_PACKAGE_DIR="${CMAKE_INSTALL_LIBDIR}/cmake/trireme")

# Every public header (what trireme/trireme.h reaches) is compiled alone, twice over in one file: it includes what it
# uses and guards itself.
if(TRIREME_TORCH)
  trireme_public_headers(public_headers)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/public_headers)
  set(sources "")
  if(TRIREME_GROUPED)
    # A build in groups is for who has little time: it parses LibTorch's headers once, each of ours alone, and compiles ours together.
    list(TRANSFORM public_headers REPLACE "(.+)" "#include <\\1>\n" OUTPUT_VARIABLE includes)
    string(JOIN "" includes ${includes})
    set(sources ${folder}/all.cc)
    file(CONFIGURE OUTPUT ${sources} CONTENT "@includes@" @ONLY)
  else()
    foreach(header ${public_headers})
      string(REGEX REPLACE "[/.]" "_" name "${header}")
      set(source ${folder}/${name}.cc)
      file(CONFIGURE OUTPUT ${source} CONTENT "#include <@header@>\n#include <@header@>\n" @ONLY)
      list(APPEND sources ${source})
    endforeach()
  endif()
  add_library(trireme_public_headers OBJECT ${sources})
  set_target_properties(trireme_public_headers PROPERTIES UNITY_BUILD OFF)
  if(TRIREME_GROUPED)
    target_precompile_headers(trireme_public_headers PRIVATE <torch/types.h> <torch/nn/module.h> <torch/optim/optimizer.h>)
    trireme_test_launcher(trireme_public_headers)
    get_target_property(launcher trireme_public_headers CXX_COMPILER_LAUNCHER)
    if(NOT launcher)
      set(launcher "")
    endif()
    set_source_files_properties(${sources} PROPERTIES OBJECT_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/house/headers_alone.sh)
    set_target_properties(trireme_public_headers PROPERTIES CXX_COMPILER_LAUNCHER
                                                            "${CMAKE_CURRENT_SOURCE_DIR}/house/headers_alone.sh;${launcher}")
  endif()
  # Against the library that users link: nothing of ours reaches them but what it exports.
  target_link_libraries(trireme_public_headers PRIVATE trireme)
  target_compile_options(trireme_public_headers PRIVATE -Wall -Wextra -O0 $<$<BOOL:${TRIREME_WERROR}>:-Werror>)
endif()

if(NOT TRIREME_SANITIZE)
  add_test(NAME house_format COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/house/format.sh)
  set_tests_properties(house_format PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 LABELS house)
  add_test(NAME scripts_setup COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/house/setup.sh)
  set_tests_properties(scripts_setup PROPERTIES TIMEOUT 60 LABELS scripts)
  add_test(NAME scripts_suite COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/house/suite.sh)
  set_tests_properties(scripts_suite PROPERTIES TIMEOUT 60 LABELS scripts)
endif()
