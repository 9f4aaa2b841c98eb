# SPDX-License-Identifier: Apache-2.0
# libFuzzer over the targets of tests/fuzz/targets.h; needs clang:
#   cmake -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DTRIREME_TORCH=OFF -DTRIREME_FUZZ=ON
#   ninja -C build/fuzz fuzzers
#   mkdir -p build/fuzz/new && build/fuzz/tests/fuzz_frames -max_total_time=60 -max_len=4096 \
#     build/fuzz/new tests/fuzz/corpus/frames
# What it finds goes into tests/fuzz/corpus/<target>, under the name of the fact that was wrong.
option(TRIREME_FUZZ "Build libFuzzer programs (clang)" OFF)
if(NOT TRIREME_FUZZ)
  return()
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "TRIREME_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++")
endif()

set(fuzzed_folders base base/* net net/server channel/tcp store store/* interop interop/* checkpoint/steps checkpoint/steps/* pipeline/schedule pipeline/schedule/* data/text data/text/prepared rpc/wire rpc/autograd/plan)
list(TRANSFORM fuzzed_folders PREPEND ${PROJECT_SOURCE_DIR}/trireme/)
list(TRANSFORM fuzzed_folders APPEND /*.cc)
file(GLOB fuzzed CONFIGURE_DEPENDS ${fuzzed_folders} ${PROJECT_SOURCE_DIR}/trireme/rendezvous/etcd/messages.cc
     ${PROJECT_SOURCE_DIR}/trireme/launch/membership/*.cc
     ${PROJECT_SOURCE_DIR}/trireme/channel/local/ring.cc ${PROJECT_SOURCE_DIR}/trireme/channel/local/message_format.cc
     ${PROJECT_SOURCE_DIR}/trireme/rpc/object/ledger.cc ${PROJECT_SOURCE_DIR}/trireme/rpc/object/messages.cc
     ${PROJECT_SOURCE_DIR}/trireme/rpc/agent/registry.cc)
# A source's properties are those of the folder that sets them.
set_source_files_properties(${PROJECT_SOURCE_DIR}/trireme/base/version.cc PROPERTIES COMPILE_DEFINITIONS
                            TRIREME_VERSION="${PROJECT_VERSION}")
add_library(fuzz_objects OBJECT EXCLUDE_FROM_ALL ${fuzzed})
target_link_libraries(fuzz_objects PUBLIC trireme_store_use trireme_channel_use trireme_interop_use trireme_rpc_use)
target_compile_options(fuzz_objects PUBLIC -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -g1)
add_custom_target(fuzzers)
foreach(target frames requests handshake sealed channel_frames file_log pickle torch_file dcp_metadata checkpoint_index safetensors snapshot schedule_table etcd_answer event_ring channel_ring members parts vocabulary natural_question prepared_part rpc_messages rpc_references rpc_members
               rpc_backward_calls rpc_backward_plan)
  add_executable(fuzz_${target} EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/fuzz_main.cc $<TARGET_OBJECTS:fuzz_objects>)
  target_link_libraries(fuzz_${target} PRIVATE fuzz_objects)
  target_compile_definitions(fuzz_${target} PRIVATE TRIREME_FUZZ_TARGET=${target})
  target_link_options(fuzz_${target} PRIVATE -fsanitize=fuzzer,address,undefined)
  add_dependencies(fuzzers fuzz_${target})
endforeach()
