# SPDX-License-Identifier: Apache-2.0
# HTTP (net/http) by libcurl. Its headers are enough here: the library is loaded by the launchers that use it, so that no rank pays for it.
find_path(TRIREME_CURL_INCLUDE curl/curl.h DOC "Where libcurl's headers are")
set(http ${PROJECT_SOURCE_DIR}/trireme/net/http)
if(TRIREME_CURL_INCLUDE)
  set_source_files_properties(${http}/http.cc PROPERTIES INCLUDE_DIRECTORIES ${TRIREME_CURL_INCLUDE} SKIP_UNITY_BUILD_INCLUSION ON)
  list(APPEND TRIREME_EXCLUDE_SOURCES ${http}/no_http.cc)
else()
  message(STATUS "libcurl: not found; nodes do not meet through etcd")
  list(APPEND TRIREME_EXCLUDE_SOURCES ${http}/http.cc)
endif()
