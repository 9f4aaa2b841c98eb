# SPDX-License-Identifier: Apache-2.0
# One object library per folder of trireme/; its DEPS are its row of the include table in docs/design.md.

add_library(trireme_options INTERFACE)
target_compile_options(trireme_options INTERFACE -Wall -Wextra $<$<BOOL:${TRIREME_WERROR}>:-Werror>)
# No contraction: the same bits whatever the compiler would like to fuse (design §3).
target_compile_options(trireme_options INTERFACE -ffp-contract=off)
# Call sites in error texts are paths of this tree, not of the machine that built it.
target_compile_options(trireme_options INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
# Where ccache makes paths relative to the build folder (CCACHE_BASEDIR, scripts/build), the same names come out.
file(RELATIVE_PATH TRIREME_SOURCE_FROM_BUILD ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
string(REGEX REPLACE "/$" "" TRIREME_SOURCE_FROM_BUILD "${TRIREME_SOURCE_FROM_BUILD}")
target_compile_options(trireme_options INTERFACE -fmacro-prefix-map=${TRIREME_SOURCE_FROM_BUILD}/=)
if(TRIREME_GROUPED)
  # GCC takes what a grouped source keeps to itself for a header's.
  target_compile_options(trireme_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
if(TRIREME_SANITIZE)
  # -O1: compiled a third faster than with -O2, and runs as fast as its tests wait.
  target_compile_options(trireme_options INTERFACE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer -g1
                                                   $<$<CONFIG:Release>:-O1>)
  target_link_options(trireme_options INTERFACE -fsanitize=${TRIREME_SANITIZE})
  # GCC says of itself that this warning is not to be trusted under a sanitizer.
  target_compile_options(trireme_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  if(TRIREME_SANITIZE STREQUAL "undefined")
    target_compile_options(trireme_options INTERFACE -fno-sanitize-recover=all)
  endif()
endif()

# trireme_folder(grad INNER hooks DEPS comm tensor base LIBS …): compiles trireme/grad/*.cc and trireme/grad/hooks/*.cc. <name>_use carries what includers need (include
# paths, LIBS, the _use of DEPS); <name>_objects is the code. TRIREME_EXCLUDE_SOURCES (absolute paths) are left out: an absent
# backend is its no_<name>.cc twin.
function(trireme_folder folder)
  cmake_parse_arguments(arg "" "" "INNER;DEPS;LIBS" ${ARGN})
  string(REPLACE "/" "_" name "${folder}")
  add_library(trireme_${name}_use INTERFACE)
  target_include_directories(trireme_${name}_use INTERFACE ${PROJECT_SOURCE_DIR})
  target_link_libraries(trireme_${name}_use INTERFACE ${arg_LIBS})
  set_property(GLOBAL PROPERTY trireme_${name}_libs "${arg_LIBS}")
  foreach(dep ${arg_DEPS})
    string(REPLACE "/" "_" dep "${dep}")
    target_link_libraries(trireme_${name}_use INTERFACE trireme_${dep}_use)
  endforeach()

  set(patterns ${PROJECT_SOURCE_DIR}/trireme/${folder}/*.cc)
  foreach(inner ${arg_INNER})
    list(APPEND patterns ${PROJECT_SOURCE_DIR}/trireme/${folder}/${inner}/*.cc)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(TRIREME_EXCLUDE_SOURCES)
    list(REMOVE_ITEM sources ${TRIREME_EXCLUDE_SOURCES})
  endif()
  # Left alone: Highway includes such a source once for each instruction set; the kernel's tcp.h defines glibc's structs again.
  foreach(source ${sources})
    file(STRINGS ${source} kernels REGEX "define (HWY_TARGET_INCLUDE|XXH_INLINE_ALL)|include <linux/tcp.h>")
    if(kernels)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  if(sources)
    add_library(trireme_${name}_objects OBJECT ${sources})
    target_link_libraries(trireme_${name}_objects PRIVATE trireme_${name}_use trireme_options)
  endif()
endfunction()

# The shared library that users link (lib<name>.so, hidden visibility) and the static twin for our own programs and tests.
function(trireme_library name)
  cmake_parse_arguments(arg "" "" "FOLDERS;LIBS" ${ARGN})
  set(objects "")
  set(libs ${arg_LIBS})
  foreach(folder ${arg_FOLDERS})
    string(REPLACE "/" "_" folder "${folder}")
    if(TARGET trireme_${folder}_objects)
      list(APPEND objects $<TARGET_OBJECTS:trireme_${folder}_objects>)
    endif()
    get_property(folder_libs GLOBAL PROPERTY trireme_${folder}_libs)
    list(APPEND libs ${folder_libs})
  endforeach()
  list(REMOVE_DUPLICATES libs)

  set(static_libs ${libs})
  list(TRANSFORM static_libs REPLACE "^trireme_core$" "trireme_core_static")
  add_library(${name} SHARED ${objects})
  if(NOT TRIREME_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,--no-undefined)  # found here, not by the first user
  endif()
  add_library(${name}_static STATIC ${objects})
  set(exported_libs ${arg_LIBS})
  target_link_libraries(${name} PUBLIC ${exported_libs} PRIVATE ${libs} trireme_options)
  target_link_libraries(${name}_static PUBLIC ${static_libs} trireme_options)
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
  string(REGEX REPLACE "^trireme_" "" export_name ${name})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${export_name})
  add_library(trireme::${export_name} ALIAS ${name})
  foreach(lib ${name} ${name}_static)
    target_include_directories(${lib} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_features(${lib} PUBLIC cxx_std_20)
  endforeach()
endfunction()
