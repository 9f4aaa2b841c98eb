// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

// Which MPI this process uses: the one that is loaded, the one whose launcher started it, or the
// one that TRIREME_MPI names.
namespace trireme::detail {

enum class MpiFlavour : unsigned char { openmpi, mpich };

constexpr const char* name_of(MpiFlavour f) {
  return f == MpiFlavour::openmpi ? "openmpi" : "mpich";
}
constexpr const char* debian_package_of(MpiFlavour f) {
  return f == MpiFlavour::openmpi ? "libopenmpi-dev" : "libmpich-dev";
}

/// As std::getenv; null or "" means not set.
using MpiGetenv = std::function<const char*(const char*)>;

inline bool is_set(const MpiGetenv& env, const char* name) {
  const char* value = env(name);
  return value && *value;
}

/// Recognises the MPI from the file names of the libraries in a process.
inline std::optional<MpiFlavour> mpi_among(const std::vector<std::string>& libraries) {
  for (const std::string& path : libraries) {
    const std::string file = path.substr(path.rfind('/') + 1);
    // libmpi.so.12 is the ABI that MPICH, Intel MPI and MVAPICH share.
    if (file.rfind("libmpich.so", 0) == 0 || file.rfind("libmpi.so.12", 0) == 0)
      return MpiFlavour::mpich;
    if (file.rfind("libmpi.so", 0) == 0) return MpiFlavour::openmpi;
  }
  return std::nullopt;
}

/// Recognises the MPI from a launcher's variables. PMIx alone (srun --mpi=pmix) does not identify
/// it.
inline std::optional<MpiFlavour> mpi_launcher(const MpiGetenv& env) {
  if (is_set(env, "OMPI_COMM_WORLD_RANK")) return MpiFlavour::openmpi;
  for (const char* name : {"PMI_RANK", "PMI_FD", "HYDI_CONTROL_FD", "MV2_COMM_WORLD_RANK",
                           "PALS_RANKID", "ALPS_APP_PE"})
    if (is_set(env, name)) return MpiFlavour::mpich;
  return std::nullopt;
}

/// Whether this process was started in a way that lets MPI_Init find the other ranks.
inline bool started_for_mpi(const MpiGetenv& env) {
  if (mpi_launcher(env)) return true;
  for (const char* name : {"PMIX_RANK", "SLURM_STEP_ID", "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK"})
    if (is_set(env, name)) return true;
  return false;
}

/// The order in which to look for a module. TRIREME_MPI, or an MPI that is loaded, leaves no
/// choice; nullopt: TRIREME_MPI is invalid.
inline std::optional<std::vector<MpiFlavour>> mpi_choice(
    const MpiGetenv& env, const std::vector<std::string>& libraries) {
  if (is_set(env, "TRIREME_MPI")) {
    for (MpiFlavour f : {MpiFlavour::openmpi, MpiFlavour::mpich})
      if (std::string(env("TRIREME_MPI")) == name_of(f)) return {{f}};
    return std::nullopt;
  }
  if (const auto loaded = mpi_among(libraries)) return {{*loaded}};
  if (const auto launcher = mpi_launcher(env)) return {{*launcher}};
  return {{MpiFlavour::openmpi, MpiFlavour::mpich}};
}

}  // namespace trireme::detail
