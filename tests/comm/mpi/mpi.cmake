# SPDX-License-Identifier: Apache-2.0
# The tests of the mpi backend, and what they let mpirun start: ranks, and for each MPI a program that uses it itself.
trireme_tests(comm/mpi LIBS trireme_static)
if(TRIREME_MPI_FLAVOURS)
  add_executable(mpi_ranks ${CMAKE_CURRENT_LIST_DIR}/ranks.cc)
  target_link_libraries(mpi_ranks PRIVATE trireme_static trireme_options)
  set(programs mpi_ranks)
  foreach(flavour ${TRIREME_MPI_FLAVOURS})
    add_executable(mpi_guest_${flavour} ${CMAKE_CURRENT_LIST_DIR}/guest.cc)
    target_link_libraries(mpi_guest_${flavour} PRIVATE trireme_lib_${flavour} trireme_static trireme_options)
    list(APPEND programs mpi_guest_${flavour} trireme_mpi_${flavour})
  endforeach()
  add_dependencies(test_comm_mpi ${programs})
endif()
