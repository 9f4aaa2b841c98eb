# SPDX-License-Identifier: Apache-2.0
# io_uring for offloaded state (shard/offload_*), through liburing; without it, reads and writes on a thread.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(TRIREME_URING QUIET IMPORTED_TARGET GLOBAL liburing)
endif()
if(TRIREME_URING_FOUND)
  set(TRIREME_OFFLOAD_LIBS PkgConfig::TRIREME_URING)
  list(APPEND TRIREME_EXCLUDE_SOURCES ${PROJECT_SOURCE_DIR}/trireme/shard/offload/offload_no_io_uring.cc)
else()
  message(STATUS "liburing: not found; offload to disk reads and writes on a thread")
  list(APPEND TRIREME_EXCLUDE_SOURCES ${PROJECT_SOURCE_DIR}/trireme/shard/offload/offload_io_uring.cc)
endif()
