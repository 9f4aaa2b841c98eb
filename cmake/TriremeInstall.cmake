# SPDX-License-Identifier: Apache-2.0
# find_package(trireme): from the install tree, and from the build tree with -Dtrireme_DIR=build/release.
#   trireme::trireme  the library (where LibTorch is built in) · trireme::core  its torch-free half
include(CMakePackageConfigHelpers)

# check.h is public and formats, so fmt is part of what users compile.
target_link_libraries(trireme_core PUBLIC fmt::fmt Threads::Threads)

# In somebody's tree (add_subdirectory, FetchContent) the targets are enough.
option(TRIREME_INSTALL "Install the library and its CMake package" ${PROJECT_IS_TOP_LEVEL})
if(NOT TRIREME_INSTALL)
  return()
endif()

set(libraries trireme_core)
if(TRIREME_TORCH)
  # LibTorch goes along as a target of ours: the paths where it was taken by hand, else the name that find_package(Torch)
  # makes again on the user's side.
  set_target_properties(trireme_torch PROPERTIES EXPORT_NAME torch)
  list(APPEND libraries trireme trireme_torch)
endif()
set_target_properties(trireme_core PROPERTIES INSTALL_RPATH "$ORIGIN")
if(TARGET trireme)
  set_target_properties(trireme PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
install(TARGETS ${libraries} EXPORT triremeTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
trireme_public_headers(public_headers)
if(NOT TRIREME_TORCH)
  list(JOIN TRIREME_CORE "|" core)
  list(FILTER public_headers INCLUDE REGEX "^trireme/(${core})/[^/]+$")
endif()
foreach(header ${public_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme)
install(EXPORT triremeTargets NAMESPACE trireme:: DESTINATION ${package_dir})
export(EXPORT triremeTargets NAMESPACE trireme:: FILE ${PROJECT_BINARY_DIR}/triremeTargets.cmake)

configure_package_config_file(cmake/triremeConfig.cmake.in ${PROJECT_BINARY_DIR}/triremeConfig.cmake
                              INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/triremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/triremeConfig.cmake ${PROJECT_BINARY_DIR}/triremeConfigVersion.cmake
        DESTINATION ${package_dir})
