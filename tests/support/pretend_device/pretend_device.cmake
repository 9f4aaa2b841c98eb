# SPDX-License-Identifier: Apache-2.0
# GPUs for tests that have none (pretend_device.h). Who uses them adds $<TARGET_OBJECTS:pretend_device> to its sources: LibTorch hears of
# them while the program starts. compat.h, hooks.cc and autocast.cc say what differs between LibTorch 1.13 and 2.x.
if(NOT TRIREME_TORCH_DIR)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  add_library(pretend_device OBJECT ${sources})
  target_link_libraries(pretend_device PRIVATE trireme_static test_options)
  # As the programs that it becomes a part of, whose precompiled header it shares.
  set_target_properties(pretend_device PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(pretend_device PRIVATE -fPIE)
  trireme_test_headers(pretend_device)
  # Tests of it, and of what Trireme does on a device that is not the CPU.
  foreach(folder support/pretend_device device)
    trireme_tests(${folder} LIBS trireme_static nlohmann_json::nlohmann_json)
    string(REPLACE "/" "_" name ${folder})
    target_sources(test_${name} PRIVATE $<TARGET_OBJECTS:pretend_device>)
  endforeach()
  # device/planted_faults_test.cc puts itself between the library and its seam to devices: DeviceStream::wait(), ::record(),
  # DeviceEvent::wait_on_host(), host_buffer(), copy_in_stream_order().
  foreach(symbol _ZNK7trireme12DeviceStream4waitERKNS_11DeviceEventE _ZNK7trireme12DeviceStream6recordEv
                 _ZNK7trireme11DeviceEvent12wait_on_hostENS_8DeadlineE
                 _ZN7trireme11host_bufferEN3c108ArrayRefIlEENS0_10ScalarTypeENS0_6DeviceE
                 _ZN7trireme20copy_in_stream_orderERKN2at6TensorES3_)
    target_link_options(test_device PRIVATE -Wl,--wrap=${symbol})
  endforeach()
  # What mpirun starts for tests/device.
  if(TRIREME_MPI_FLAVOURS)
    add_executable(mpi_on_devices ${CMAKE_CURRENT_LIST_DIR}/../../device/mpi_ranks.cc $<TARGET_OBJECTS:pretend_device>)
    target_link_libraries(mpi_on_devices PRIVATE trireme_static nlohmann_json::nlohmann_json test_options)
    trireme_test_headers(mpi_on_devices)
    add_dependencies(test_device mpi_on_devices)
    foreach(flavour ${TRIREME_MPI_FLAVOURS})
      add_dependencies(test_device trireme_mpi_${flavour})
    endforeach()
  endif()
endif()
