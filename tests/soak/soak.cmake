# SPDX-License-Identifier: Apache-2.0
# The random programs that scripts/soak repeats, and the test of the script itself. Included by tests/CMakeLists.txt.
set(soak_programs soak_parsers)
add_executable(soak_parsers ${CMAKE_CURRENT_LIST_DIR}/parsers.cc)
target_link_libraries(soak_parsers PRIVATE trireme_core_static test_options)
if(TRIREME_TORCH)
  add_executable(soak_collectives ${CMAKE_CURRENT_LIST_DIR}/collectives.cc)
  target_link_libraries(soak_collectives PRIVATE trireme_static test_options)
  list(APPEND soak_programs soak_collectives)
endif()
if(TRIREME_TORCH AND TRIREME_CLI AND NOT TRIREME_SANITIZE)
  add_test(NAME scripts_soak COMMAND ${CMAKE_CURRENT_LIST_DIR}/soak_test.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(scripts_soak PROPERTIES TIMEOUT 300 LABELS scripts)
endif()
