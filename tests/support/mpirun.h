// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/command.h"
#include "tests/support/paths.h"
#include "tests/support/ports.h"

// Jobs under the real mpirun of each MPI that this build has a module for.
namespace trireme::testing {

enum class Mpi { open, mpich };

inline std::string name_of(Mpi mpi) { return mpi == Mpi::open ? "openmpi" : "mpich"; }

/// "": it is there.
inline std::string why_not(Mpi mpi) {
  if (!std::filesystem::exists(trireme::testing::build_path("/libtrireme_mpi_") + name_of(mpi) +
                               ".so"))
    return "this build has no module for " + name_of(mpi);
  for (const char* folder : {"/usr/bin/", "/usr/local/bin/"})
    if (std::filesystem::exists(folder + ("mpirun." + name_of(mpi)))) return "";
  return "mpirun." + name_of(mpi) + " is not installed";
}

/// n ranks of a program of this build's tests.
inline Arguments mpi_ranks(Mpi mpi, int n, const std::string& program, const Arguments& facts) {
  Arguments words{"mpirun." + name_of(mpi), "-n", std::to_string(n)};
  if (mpi == Mpi::open) {
    words.push_back("--oversubscribe");
    if (::geteuid() == 0) words.push_back("--allow-run-as-root");
  }
  words.push_back(trireme::testing::build_path("/tests/") + program);
  words.insert(words.end(), facts.begin(), facts.end());
  return words;
}

/// A job of its own: others of this user may run beside it.
inline Environment own_job(Environment env = {}) {
  env["MASTER_PORT"] = std::to_string(free_tcp_port());
  env["OMP_NUM_THREADS"] = "1";
  return env;
}

inline int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace trireme::testing
